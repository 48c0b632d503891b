"""The entry point: a cluster, for programs that move whole record batches.

Calls block, and a cluster serves one thread at a time. A call retries for `retry_timeout_ms` while brokers restart,
leaders move and coordinators load; its error then names the broker and the request. Records stay bytes: the client
reads no batch beyond its header.

    with Cluster(ClientSettings("localhost:9092")) as cluster:
        end = cluster.list_offsets({partition: LATEST})[partition].offset
        for fetched in cluster.stream(partition, 0, end):
            ...
"""

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

from cordwood.client import families, fetching, groups, offsets, topic_facts, transactions
from cordwood.client.answers import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_POSITION,
    Committed,
    Fetched,
    FoundOffset,
    Isolation,
    PartitionMetadata,
    Produced,
    ProducerIdentity,
    TopicMetadata,
)
from cordwood.client.brokers import Brokers
from cordwood.client.convoy import convoy
from cordwood.client.families import (
    FamilyDecided,
    FamilyDescription,
    FamilyJoined,
    FamilyMember,
    FamilyMemory,
    FamilyPlan,
    FamilyStanding,
)
from cordwood.client.producing import ProducePipeline
from cordwood.client.settings import ClientSettings
from cordwood.client.streaming import OffsetRange, RangeStream
from cordwood.model.identifiers import TopicPartition
from cordwood.records.batch import Buffer

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "NO_POSITION",
    "Cluster",
    "Committed",
    "FamilyDecided",
    "FamilyDescription",
    "FamilyJoined",
    "FamilyMember",
    "FamilyMemory",
    "FamilyPlan",
    "FamilyStanding",
    "Fetched",
    "FoundOffset",
    "Isolation",
    "OffsetRange",
    "PartitionMetadata",
    "ProducePipeline",
    "Produced",
    "ProducerIdentity",
    "RangeStream",
    "TopicMetadata",
]


class Cluster:
    """A cluster, connected at the first call. Callers `close` it, or use it as a context manager."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._brokers = Brokers(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._brokers.close()

    # Metadata.

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """Lowest and highest version by API key, as one of the brokers lists them."""
        return dict(self._brokers.versions().ranges)

    def supports(self, api_key: int) -> bool:
        """True if the cluster has this API in a version that this client speaks."""
        return self._brokers.versions().supports(api_key)

    @property
    def transaction_version(self) -> int:
        """The finalized feature transaction.version: from 2 on, a Produce adds its partitions to a transaction."""
        return self._brokers.versions().transaction_version

    def topics(self, names: Collection[str] | None = None, *, create: bool = False) -> dict[str, TopicMetadata]:
        """The topics of these names, or all topics, as the cluster has them now. Topics that do not exist are left out;
        with `create` a broker with auto.create.topics.enable creates them."""
        return self._brokers.retried(lambda: self._brokers.describe(names, create=create))

    def describe_configs(self, topic: str) -> dict[str, str]:
        """The settings that apply to the topic. Raises UnknownTopic if the topic does not exist."""
        return topic_facts.describe_configs(self._brokers, topic)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> dict[TopicPartition, FoundOffset]:
        """Finds for each partition EARLIEST, LATEST, MAX_TIMESTAMP, or the first offset with a record at least as new
        as a time in ms (-1 if there is none). LATEST under READ_COMMITTED is the last stable offset. Partitions that do
        not exist are left out."""
        return offsets.list_offsets(self._brokers, wanted, isolation)

    def log_sizes(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Bytes of each partition's log. Partitions whose brokers do not tell are left out."""
        return topic_facts.log_sizes(self._brokers, topics)

    # Reading.

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int | None = None,
        max_wait_ms: int | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Fetched:
        """One answer, without records if none come within max_wait_ms. Raises OffsetOutOfRange, UnknownTopic."""
        return fetching.fetch(
            self._brokers, partition, offset, max_bytes=max_bytes, max_wait_ms=max_wait_ms, isolation=isolation
        )

    def stream(
        self,
        partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        max_bytes: int | None = None,
        read_ahead: int = 1,
    ) -> RangeStream:
        """Streams all records of [start_offset, end_offset), in the partition's order, as whole batches: the first
        batch may begin before the range and the last batch may end after it.

        The stream ends when the range is passed, also if the range's tail holds no batch any more. Raises
        OffsetOutOfRange if the log does not have the next offset (any more), UnknownTopic if the topic is deleted, also
        if it is then created again; EndNotReached if `end_offset` does not become readable within retry_timeout_ms.

        `read_ahead` is 1, or 0 to send no request before the present answer is used up. A larger number would not help:
        the next offset is known only from the previous answer. A caller that leaves the iterator early may `close` it.
        """
        if read_ahead not in (0, 1):
            raise ValueError(f"read_ahead must be 0 or 1, not {read_ahead}")
        wanted = OffsetRange(partition, start_offset, end_offset)
        return RangeStream(self._brokers, wanted, isolation, max_bytes, read_ahead)

    def streams(
        self,
        ranges: Sequence[OffsetRange],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        max_bytes: int | None = None,
    ) -> list[RangeStream]:
        """Like `stream`, for several ranges that are read one after the other, in this order. While one range is read,
        requests for the next ranges are on their way, and small ranges share a request, so that a hundred partitions do
        not cost a hundred round trips. An error of one stream does not touch the other streams."""
        return convoy(self._brokers, ranges, isolation, max_bytes)

    # Writing.

    def produce(
        self,
        batches: Mapping[TopicPartition, Sequence[Buffer]],
        *,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> dict[TopicPartition, Produced]:
        """Sends ready batches, in order for each partition; returns once all are acknowledged. Batches of an idempotent
        producer are stored once, other batches at least once."""
        pipeline = self.pipeline(acks=acks, transactional_id=transactional_id)
        pipeline.send(batches)
        return pipeline.finish()

    def pipeline(self, *, acks: int = -1, transactional_id: str | None = None) -> ProducePipeline:
        """Like `produce`, for a caller that makes the next batches while earlier ones are on their way."""
        return ProducePipeline(self._brokers, acks=acks, transactional_id=transactional_id)

    # Positions of groups without members.

    def groups(self) -> list[str]:
        """The names of the cluster's groups, of any kind, that the brokers show to this client."""
        return groups.names(self._brokers)

    def committed(self, group: str, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The group's positions in these partitions or in all. Partitions without a position are left out."""
        found = groups.committed(self._brokers, group, partitions)
        return {partition: committed.offset for partition, committed in found.items() if committed.offset >= 0}

    def committed_with_metadata(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """Like `committed`, with the text that was committed along with each position, or with NO_POSITION."""
        return groups.committed(self._brokers, group, partitions)

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str | Mapping[TopicPartition, str] = "",
        retention_ms: int | None = None,
    ) -> None:
        """Commits positions of the group. `metadata` is one text for all positions, or a text for each. Positions with
        `retention_ms` expire that long after the commit; a group without members vanishes with its last position."""
        groups.commit(self._brokers, group, offsets, metadata, retention_ms)

    def delete_group(self, group: str) -> None:
        """Removes a group without members, and its positions. A group that does not exist is no error."""
        groups.delete_group(self._brokers, group)

    # Transactions.

    def init_producer_id(
        self,
        transactional_id: str | None = None,
        timeout_ms: int = 60_000,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> ProducerIdentity:
        """An identity for an idempotent producer. The earlier producer of a transactional id is fenced and its
        transaction aborted."""
        producer = ProducerIdentity(producer_id, producer_epoch)
        return transactions.init_producer_id(self._brokers, transactional_id, timeout_ms, producer)

    def commit_in_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str = "",
    ) -> None:
        """Commits positions of a group that hold once the transaction is committed (TxnOffsetCommit)."""
        transactions.commit_offsets(self._brokers, transactional_id, producer, group, offsets, metadata)

    def end_transaction(self, transactional_id: str, producer: ProducerIdentity, *, commit: bool) -> ProducerIdentity:
        """Commits or aborts. Returns the next transaction's identity: transaction_version 2 raises the epoch."""
        return transactions.end_transaction(self._brokers, transactional_id, producer, commit)

    # Families: one decision over many transactions.

    def family_join(self, family: str, batch_id: int, timeout_ms: int) -> FamilyJoined:
        """Takes a slot to write this batch with: a transactional id and a producer. The slot is None if the batch is
        decided already. The broker aborts the slot if no writer joins or renews for the batch within timeout_ms."""
        return families.join(self._brokers, family, batch_id, timeout_ms)

    def family_renew(self, family: str, batch_id: int) -> FamilyStanding:
        """Renews the lease of a batch: its writers have their full timeout again."""
        return families.renew(self._brokers, family, batch_id)

    def family_decide(
        self,
        family: str,
        batch_id: int,
        *,
        commit: bool,
        winners: Sequence[FamilyMember] = (),
        forget: bool = False,
        plan: FamilyPlan = families.NO_PLAN,
    ) -> FamilyDecided:
        """Commits the slots of the winners and aborts the rest, or aborts all slots, or only the named ones; returns
        when every reader sees the result. Raises RequestRefused with PRODUCER_FENCED if a winner has lost its slot;
        then nothing has changed. A commit keeps `plan`, for `family_recall`."""
        return families.decide(self._brokers, family, batch_id, commit, winners, forget, plan)

    def family_recall(self, family: str) -> FamilyMemory:
        """The family's memory of the last batch that it decided."""
        return families.recall(self._brokers, family)

    def families(self, names: Collection[str] | None = None) -> list[FamilyDescription]:
        return families.describe(self._brokers, names)

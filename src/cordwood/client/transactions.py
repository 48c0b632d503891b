"""Producer ids, and a transaction from its first partition to its end, in both versions of the protocol.

With transaction.version 2 (KIP-890) a Produce and a TxnOffsetCommit add their partitions to the transaction, and the
transaction's end raises the producer's epoch. In older clusters the client adds every partition first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from cordwood.client.answers import ProducerIdentity
from cordwood.client.brokers import Brokers, KeyType
from cordwood.client.errors import UnknownTopic, error_code, refusal
from cordwood.client.groups import by_topic
from cordwood.client.link import Link
from cordwood.client.versions import IMPLICIT_PARTITIONS
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.add_offsets_to_txn import AddOffsetsToTxn
    from cordwood.wire.message_types.add_partitions_to_txn import AddPartitionsToTxn
    from cordwood.wire.message_types.end_txn import EndTxn
    from cordwood.wire.message_types.init_producer_id import InitProducerId
    from cordwood.wire.message_types.txn_offset_commit import TxnOffsetCommit

_END_WITHOUT_BUMP: Final = 4
_OFFSETS_WITHOUT_IMPLICIT_ADD: Final = 4


def adds_partitions_itself(brokers: Brokers) -> bool:
    """True if a Produce adds its partitions to the transaction, without an AddPartitionsToTxn before it."""
    return brokers.versions().transaction_version >= IMPLICIT_PARTITIONS


def init_producer_id(
    brokers: Brokers, transactional_id: str | None, timeout_ms: int, producer: ProducerIdentity
) -> ProducerIdentity:
    values = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }

    def read(link: Link, response: InitProducerId.Response) -> ProducerIdentity:
        about = f"for transactional id {transactional_id}" if transactional_id is not None else ""
        _check(link, ApiKey.INIT_PRODUCER_ID, about, response.error_code)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    if transactional_id is not None:
        return brokers.ask_coordinator(KeyType.TRANSACTION, transactional_id, ApiKey.INIT_PRODUCER_ID, values, read)

    def attempt() -> ProducerIdentity:
        link = brokers.any()
        return read(link, link.ask(ApiKey.INIT_PRODUCER_ID, values))

    return brokers.retried(attempt)


def add_partitions(
    brokers: Brokers, transactional_id: str, producer: ProducerIdentity, partitions: Collection[TopicPartition]
) -> None:
    if not partitions:
        return
    values = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": [
            {"name": name, "partitions": [partition.partition for partition in of_topic]}
            for name, of_topic in by_topic(partitions).items()
        ],
    }

    def read(link: Link, response: AddPartitionsToTxn.Response) -> None:
        rows = [
            (error_code(row.partition_error_code), f"{topic.name}-{row.partition_index}")
            for topic in response.results_by_topic_v3_and_below
            for row in topic.results_by_partition
            if row.partition_error_code
        ]
        # The partition at fault comes first; all others are only "not attempted".
        for code, partition in sorted(rows, key=lambda row: row[0] == ErrorCode.OPERATION_NOT_ATTEMPTED):
            _check(link, ApiKey.ADD_PARTITIONS_TO_TXN, f"of {partition} for transactional id {transactional_id}", code)

    brokers.ask_coordinator(
        KeyType.TRANSACTION,
        transactional_id,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        values,
        read,
    )


def add_offsets(brokers: Brokers, transactional_id: str, producer: ProducerIdentity, group: str) -> None:
    values = {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "group_id": group,
    }

    def read(link: Link, response: AddOffsetsToTxn.Response) -> None:
        about = f"of group {group} for transactional id {transactional_id}"
        _check(link, ApiKey.ADD_OFFSETS_TO_TXN, about, response.error_code)

    brokers.ask_coordinator(KeyType.TRANSACTION, transactional_id, ApiKey.ADD_OFFSETS_TO_TXN, values, read)


def commit_offsets(
    brokers: Brokers,
    transactional_id: str,
    producer: ProducerIdentity,
    group: str,
    offsets: Mapping[TopicPartition, int],
    metadata: str,
) -> None:
    """Commits positions of a group that hold once the transaction is committed."""
    if not offsets:
        return
    implicit = adds_partitions_itself(brokers)
    if not implicit:
        add_offsets(brokers, transactional_id, producer, group)
    values = {
        "transactional_id": transactional_id,
        "group_id": group,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": partition.partition,
                        "committed_offset": offsets[partition],
                        "committed_metadata": metadata,
                    }
                    for partition in partitions
                ],
            }
            for name, partitions in by_topic(offsets).items()
        ],
    }

    def read(link: Link, response: TxnOffsetCommit.Response) -> None:
        for topic in response.topics:
            for row in topic.partitions:
                partition = f"{topic.name}-{row.partition_index}"
                if error_code(row.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    message = f"group {group} cannot have a position in {partition}: there is no such partition"
                    raise UnknownTopic(topic.name, message)
                about = f"of group {group} in {partition} for transactional id {transactional_id}"
                _check(link, ApiKey.TXN_OFFSET_COMMIT, about, row.error_code)

    at_most = None if implicit else _OFFSETS_WITHOUT_IMPLICIT_ADD
    brokers.ask_coordinator(KeyType.GROUP, group, ApiKey.TXN_OFFSET_COMMIT, values, read, at_most=at_most)


def end_transaction(
    brokers: Brokers, transactional_id: str, producer: ProducerIdentity, commit: bool
) -> ProducerIdentity:
    """Commits or aborts; returns the identity for the next transaction."""
    values = {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "committed": commit,
    }

    def read(link: Link, response: EndTxn.Response) -> ProducerIdentity:
        about = f"({'commit' if commit else 'abort'}) for transactional id {transactional_id}"
        _check(link, ApiKey.END_TXN, about, response.error_code)
        if response.producer_id < 0:
            return producer
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    at_most = None if adds_partitions_itself(brokers) else _END_WITHOUT_BUMP
    return brokers.ask_coordinator(KeyType.TRANSACTION, transactional_id, ApiKey.END_TXN, values, read, at_most=at_most)


def _check(link: Link, api_key: ApiKey, about: str, code: int) -> None:
    if code:
        raise refusal(error_code(code), link.was_asked(api_key, about))

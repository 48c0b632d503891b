"""Positions of groups: commits, also in transactions, fetches, deletions, and expiry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.consumer.partition_sets import Share, share_of
from cordwood.groups.shard import GroupShard
from cordwood.groups.state.committed_positions import Commit, CommitOutcome, Record
from cordwood.groups.state.offset_records import Position
from cordwood.model.coordination import coordinating_partition
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.node.coordinators.coordinator_log import Done, ShardState, Writer
from cordwood.node.coordinators.group_shards import Author, GroupShards, LedGroups, nothing, pending_positions
from cordwood.node.loop.loop import Loop

MINUTE_MS = 60_000
LOOKED_AT_PER_STEP = 250

UNSTABLE = Position(-1, -1, "", -1)
"""The placeholder for a position that an open transaction is about to move."""


Settled = Callable[[list[ErrorCode]], None]
"""The callback of a commit, with one error code for each position."""


class CommitRequest(NamedTuple):
    """Positions that a reader commits, and the member in whose name it commits."""

    group_id: str
    author: Author
    commits: list[Commit]
    knows_epochs: bool = True
    """True if members of the consumer protocol may use the version of the request."""


class GroupPositions:
    def __init__(self, loop: Loop, image: ClusterImage, shards: GroupShards) -> None:
        self._loop = loop
        self._image = image
        self._shards = shards
        self._log = shards.log
        self._in_turns = loop.in_turns

    # Committing

    def commit(self, asked: CommitRequest, done: Settled) -> None:
        """Stores the positions. `done` gets one error code for each position, once all records are committed."""
        self._shards.with_shard(asked.group_id, partial(self._commit, asked, None, done), partial(_refuse, asked, done))

    def commit_in_transaction(
        self, asked: CommitRequest, admit: Callable[[TopicPartition, Done], None], writer: Writer, done: Settled
    ) -> None:
        """Stores the positions as `commit` does, but they hold only once the writer's transaction is committed.

        `admit` asks the transaction's coordinator whether the transaction includes the partition of __consumer_offsets.
        The coordinator's answer holds within the event that brings it.
        """

        def loaded(shard: LedGroups) -> None:
            def admitted(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    self._commit(asked, writer, done, shard)
                else:
                    _refuse(asked, done, error)

            admit(shard.partition.name, admitted)

        self._shards.with_shard(asked.group_id, loaded, partial(_refuse, asked, done))

    def _commit(self, asked: CommitRequest, writer: Writer | None, done: Settled, shard: LedGroups) -> None:
        machine, group_id, now = shard.machine, asked.group_id, self._loop.now
        refusal = machine.check_commit(
            group_id,
            *asked.author,
            now,
            partitions=partial(_committed_in, asked),
            transactional=writer is not None,
            knows_epochs=asked.knows_epochs,
        )
        if refusal is ErrorCode.NONE and not machine.exists(group_id) and self._shards.is_full():
            refusal = ErrorCode.GROUP_MAX_SIZE_REACHED
        if refusal is not ErrorCode.NONE:
            self._log.when_committed(shard, lambda error: _refuse(asked, done, error or refusal))
            return
        held = () if writer is None else shard.pending.keys_of(writer.producer_id)
        outcome = self._records(asked, machine, held, now)
        self._log.write(shard, outcome.records, lambda error: done(outcome.told(error)), writer)

    def _records(
        self, asked: CommitRequest, machine: GroupShard, held: Collection[bytes], now: Moment
    ) -> CommitOutcome:
        """The records of the positions. Checks again that each topic exists: it may have been deleted, and created
        anew, while the commit waited."""
        there = list(map(self._exists, asked.commits))
        present = [commit for commit, exists in zip(asked.commits, there, strict=True) if exists]
        outcome = machine.positions.commit(
            asked.group_id,
            present,
            metadata_max_bytes=self._image.settings.offset_metadata_max_bytes,
            wall_ms=now.wall_ms,
            room=self._shards.room_for_positions(),
            held=held,
        )
        if len(present) == len(there):
            return outcome
        errors = iter(outcome.errors)
        return CommitOutcome(
            outcome.records,
            [next(errors) if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for exists in there],
        )

    def _exists(self, commit: Commit) -> bool:
        topic = self._image.topics.get(commit.partition.topic)
        return topic is not None and topic.topic_id == commit.topic_id

    def partition_of(self, group_id: str) -> TopicPartition:
        """The partition that stores the positions of a group. __consumer_offsets has to exist."""
        count = len(self._image.topics[CONSUMER_OFFSETS_TOPIC].partitions)
        return TopicPartition(CONSUMER_OFFSETS_TOPIC, coordinating_partition(group_id, count))

    # Reading and deleting

    def fetch(
        self,
        group_id: str,
        reader: Author,
        done: Callable[[dict[TopicPartition, Position] | ErrorCode], None],
        *,
        require_stable: bool = False,
    ) -> None:
        """Calls back with a group's committed positions; with `require_stable` UNSTABLE where a transaction is open."""

        def loaded(shard: LedGroups) -> None:
            refusal = shard.machine.check_fetch(group_id, reader.member_id, reader.generation)
            found = shard.machine.positions_of(group_id)
            if require_stable:
                found.update(dict.fromkeys(pending_positions(shard, group_id), UNSTABLE))
            self._log.when_committed(shard, lambda error: done(error or refusal or found))

        self._shards.with_shard(group_id, loaded, done)

    def delete(
        self,
        group_id: str,
        partitions: list[TopicPartition],
        done: Callable[[ErrorCode | list[ErrorCode]], None],
    ) -> None:
        def loaded(shard: LedGroups) -> None:
            out = Outbox()
            outcome = shard.machine.delete_positions(group_id, partitions, out, pending_positions(shard, group_id))
            self._shards.settle(shard, group_id, out, lambda error: done(error or outcome))

        self._shards.with_shard(group_id, loaded, done)

    # Forgetting

    def topic_deleted(self, topic: str, topic_id: TopicId) -> None:
        """Removes the positions in a deleted topic soon; until then the topic's id hides them from readers."""

        def look(shard: LedGroups) -> None:
            positions = shard.machine.positions
            if positions.may_lack_id(topic):
                self._log.write(shard, positions.of_deleted_topic(topic, topic_id), nothing)
            else:
                shard.deleted_topics.append(topic_id)
                if len(shard.deleted_topics) == 1:
                    self._in_turns.add_steps(self._forget_deleted(shard))

        self._log.each_shard_with_records(look)

    def _forget_deleted(self, shard: LedGroups) -> Iterator[None]:
        deleted = frozenset(shard.deleted_topics)
        shard.deleted_topics.clear()
        of_topics = shard.machine.positions.of_topics
        yield from self._forget_each(shard, lambda group_id, partitions: of_topics(group_id, partitions, deleted))

    def schedule(self, now: Moment) -> None:
        interval_ms = self._image.settings.offsets_retention_check_interval_ms
        self._loop.timers.at(now.boot_ms + interval_ms, self._expire_again)

    def _expire_again(self, now: Moment) -> None:
        self.schedule(now)
        self.expire()

    def expire(self) -> None:
        """Removes expired positions in steps: a hundred thousand positions take a while."""

        def look(shard: LedGroups) -> None:
            if not shard.expiring:
                shard.expiring = True
                self._in_turns.add_steps(self._expire(shard))

        self._log.each_shard_with_records(look)

    def _expire(self, shard: LedGroups) -> Iterator[None]:
        loop, machine = self._loop, shard.machine
        ttl_ms = self._image.settings.offsets_retention_minutes * MINUTE_MS
        yield from self._forget_each(
            shard, lambda group_id, partitions: machine.expired(group_id, partitions, loop.now.wall_ms, ttl_ms)
        )
        shard.expiring = False

    def _forget_each(
        self, shard: LedGroups, tombstones: Callable[[str, list[TopicPartition]], list[Record]]
    ) -> Iterator[None]:
        """Writes the tombstones that `tombstones` gives for each group's positions, some in each step."""
        found: list[Record] = []
        left = LOOKED_AT_PER_STEP
        for group_id in shard.machine.group_ids():
            partitions = list(shard.machine.positions.of_group(group_id))
            for start in range(0, max(len(partitions), 1), LOOKED_AT_PER_STEP):
                some = partitions[start : start + LOOKED_AT_PER_STEP]
                found += tombstones(group_id, some)
                left -= len(some) + 1
                if left <= 0:
                    self._forget(shard, found)
                    found, left = [], LOOKED_AT_PER_STEP
                    yield
                    if shard.state is ShardState.UNLOADED:
                        return
        self._forget(shard, found)

    def _forget(self, shard: LedGroups, tombstones: list[Record]) -> None:
        # A position that an open transaction is about to move is in use, possibly in a new topic of the same name. A
        # later tombstone would undo the transaction's commit.
        if tombstones:
            moving = frozenset(shard.pending.moving_keys())
            self._log.write(shard, [record for record in tombstones if record[0] not in moving], nothing)


def _committed_in(asked: CommitRequest) -> Share:
    return share_of([(commit.topic_id, commit.partition.partition) for commit in asked.commits])


def _refuse(asked: CommitRequest, done: Settled, error: ErrorCode) -> None:
    done([error] * len(asked.commits))

"""Writes transaction markers to the partitions of a transaction: a marker ends the transaction there."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from cordwood.model.errors import ErrorCode, ProtocolError, StorageFailure
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.node.coordinators.coordinator_log import CoordinatorLog, Done, Ground, Writer
from cordwood.node.coordinators.group_shards import LedGroups
from cordwood.node.coordinators.verification_guards import Guards
from cordwood.node.partitions.partition import Partition
from cordwood.records.control import TransactionMarker, build_transaction_marker
from cordwood.transactions.transaction import EPOCH_BUMPED

COMMIT_TIMEOUT_MS = 5_000
"""The wait of a leader for the replicas of a marker. Answers to later requests of the coordinator wait behind it; a
marker that is not committed in this time is written again."""
MARKERS_PER_TURN = 100


class Ending(NamedTuple):
    """The end of a producer's transaction, as its coordinator decided."""

    writer: Writer
    marker: TransactionMarker
    transaction_version: int
    durable: bool = False
    """True if the markers have to be on disk, whatever the acks of their topics mean: once the completion is on disk,
    the markers are never written again."""
    topic_ids: Mapping[str, TopicId] = MappingProxyType({})
    """The ids of the transaction's topics that the coordinator knows."""


class MarkerWriter:
    def __init__(self, ground: Ground, positions: CoordinatorLog[LedGroups], guards: Guards) -> None:
        """`positions`: the log of __consumer_offsets, whose state changes with its markers."""
        self._guards = guards
        self._loop = ground.loop
        self._image = ground.image
        self._hosted = ground.hosted
        self._appends = ground.appends
        self._acks = ground.acks
        self._reports = ground.reports
        self._positions = positions

    def write(
        self,
        ending: Ending,
        partitions: Iterable[TopicPartition],
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Appends the marker to each partition, MARKERS_PER_TURN in a turn; calls back once, when every marker is
        committed or has failed."""
        wanted = list(partitions)
        outcomes: dict[TopicPartition, ErrorCode] = {}
        if not wanted:
            done(outcomes)

        def one_done(name: TopicPartition) -> Done:
            def settled(error: ErrorCode) -> None:
                outcomes[name] = error
                if len(outcomes) == len(wanted):
                    done(outcomes)

            return settled

        batch = build_transaction_marker(
            ending.marker,
            producer_id=ending.writer.producer_id,
            producer_epoch=ending.writer.producer_epoch,
            timestamp_ms=self._loop.now.wall_ms,
        )

        def write_from(start: int, now: Moment) -> None:
            end = start + MARKERS_PER_TURN
            if end < len(wanted):
                self._loop.in_turns.add(partial(write_from, end))
            for name in wanted[start:end]:
                self._write(ending, batch, name, one_done(name))

        write_from(0, self._loop.now)

    def _write(self, ending: Ending, batch: bytearray, name: TopicPartition, done: Done) -> None:
        try:
            partition = self._hosted.leader(*name)
            if ending.topic_ids.get(name.topic, partition.topic_id) != partition.topic_id:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID, f"{name} is of another topic of that name.")
            _check_epoch(ending, partition)
            self._check_coordinator(ending, partition)
            self._guards.marker(partition.replica, ending.writer, ending.transaction_version)
            if name.topic == CONSUMER_OFFSETS_TOPIC:
                self._positions.end_transaction(
                    name.partition,
                    ending.writer,
                    ending.marker,
                    done,
                    lambda offset: self._when_committed(ending, partition, offset, done),
                )
                return
            # Each partition puts its own offset into its copy.
            offset = self._appends.append_internal(
                partition, bytearray(batch), self._loop.now, ending.marker
            ).last_offset
        except ProtocolError as refusal:
            done(refusal.code)
            return
        except StorageFailure as failure:
            self._reports.failure(failure)
            done(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        self._when_committed(ending, partition, offset, done)

    def _check_coordinator(self, ending: Ending, partition: Partition) -> None:
        """Refuses a coordinator epoch that no coordinator has had: it would fence the real coordinator for ever."""
        epoch, image = ending.marker.coordinator_epoch, self._image
        topic = image.topics.get(TRANSACTION_STATE_TOPIC)
        coordinating = () if topic is None else topic.partitions
        if epoch <= 0 or any(epoch <= image.leadership(each).epoch for each in coordinating):
            return
        if epoch == partition.replica.log.replayed.producers.coordinator_epoch_of(ending.writer.producer_id):
            return
        raise ProtocolError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"A marker for producer {ending.writer.producer_id} in {partition.name} claims coordinator epoch {epoch}; "
            "no coordinator has had so high an epoch yet.",
        )

    def _when_committed(self, ending: Ending, partition: Partition, offset: int, done: Done) -> None:
        def committed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and not self._hosted.serves(partition):
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif error is ErrorCode.NONE and ending.durable:
                self._acks.when_durable(partition, offset, self._loop.now.boot_ms + COMMIT_TIMEOUT_MS, done)
            else:
                done(error)

        if partition.role.leads and partition.replica.high_watermark > offset:
            committed(ErrorCode.NONE)
        else:
            deadline_ms = self._loop.now.boot_ms + COMMIT_TIMEOUT_MS
            self._acks.when_committed(partition, offset, deadline_ms, committed, needs_enough=True)


def _check_epoch(ending: Ending, partition: Partition) -> None:
    """Refuses a marker whose epoch is not above the transaction's: in version 2 the marker may be an old one."""
    if ending.transaction_version < EPOCH_BUMPED:
        return
    open_epoch = partition.replica.log.replayed.producers.epoch_in_transaction(ending.writer.producer_id)
    if open_epoch is not None and ending.writer.producer_epoch <= open_epoch:
        raise ProtocolError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Producer {ending.writer.producer_id} has an open transaction of epoch {open_epoch} in {partition.name}; "
            f"a marker of epoch {ending.writer.producer_epoch} does not end it.",
        )

"""A broker without sockets, threads and clocks: requests come in with the time, answers and effects go out.

The node owns its partitions and the requests that wait for them. One thread drives the node, the event loop's; blocking
work goes through `Effects`. Acks wait until a flush round reports that a log is durable (`take_flush_tickets`,
`flushed`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from cordwood.cluster.image import ClusterImage, ImageDelta, TopicChange, TopicImage
from cordwood.cluster.metadata_writer import CreatedTopic
from cordwood.cluster.planner.topics import NewTopic
from cordwood.log.compaction import CompactionJob, CompactionResult
from cordwood.log.data_directory import DataDirectory
from cordwood.log.flushing import FlushTicket
from cordwood.log.log import Appended, Log
from cordwood.log.log_offsets import LogOffsets
from cordwood.log.record_work import HERE, RecordWork
from cordwood.model.broker_settings import BrokerSettings
from cordwood.model.errors import EnvironmentFailure, ErrorCode, ProtocolError, StorageFailure, SyncFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.topic_settings import NO_LIMIT, TopicSettings
from cordwood.node.apis import HANDLERS, SERVED_APIS
from cordwood.node.compaction import Compaction
from cordwood.node.early_answers import EarlyAnswers
from cordwood.node.fetch_sessions import FetchSessions
from cordwood.node.group_coordinator import GroupCoordinator
from cordwood.node.handlers.metadata import EncodedTopics
from cordwood.node.held_heartbeats import HeldHeartbeats
from cordwood.node.hosted import Deposed, HostedReplicas
from cordwood.node.hot_keys import HotKeys
from cordwood.node.in_turns import InTurns
from cordwood.node.lag_watch import LagWatch
from cordwood.node.logger_configs import LogLevels
from cordwood.node.maintenance import Maintenance
from cordwood.node.partition import Done, Partition, WaitingAck
from cordwood.node.ports import Effects, Reply
from cordwood.node.preparation import Preparation
from cordwood.node.producer_ids import ProducerIds
from cordwood.node.request import Request
from cordwood.node.scrub import Scrub
from cordwood.node.timers import Timers
from cordwood.node.transaction_coordinator import TransactionCoordinator
from cordwood.node.transactional_appends import TransactionalAppends
from cordwood.node.turns import Turns
from cordwood.records.control import TransactionMarker
from cordwood.segments.partition_metadata import TopicDescription
from cordwood.wire.api_versions import encode_unsupported_version
from cordwood.wire.apis import ApiKey
from cordwood.wire.errors import BadRequest
from cordwood.wire.requests import RequestHeader

logger = logging.getLogger("cordwood.node")

ALL_REPLICAS = -1
ACK_EXPIRY_INTERVAL_MS = 500

FLUSHED_AT_ONCE = 1000
"""The most logs in one flush round: taking and booking their tickets holds the loop for some 10 ms."""

ENDED_PER_STEP = 64
"""The most partitions whose waiting requests end in one turn: the topic was deleted, or the requests took too long."""


class Parked(Protocol):
    """A request whose answer waits for an event."""

    def abandon(self) -> None: ...

    def hurry(self, now: Moment) -> None:
        """Answers now, with the data at hand."""


class Node:
    """One broker of the cluster, as a state machine."""

    def __init__(
        self,
        image: ClusterImage,
        logs: DataDirectory,
        effects: Effects,
        now: Moment,
        *,
        broker_epoch: int,
        compact: Callable[[CompactionJob], CompactionResult],
        log_levels: LogLevels,
        seed: int,
        apart: RecordWork = HERE,
    ) -> None:
        """`broker_epoch`: the epoch of this process's registration."""
        self.image = image
        self.broker_id = image.node_id
        self.logs = logs
        self.effects = effects
        self.now = now
        self.timers = Timers()
        self.turns = Turns(self.timers, effects.wake, lambda: self.now)
        self.in_turns = InTurns(self.timers, effects.wake, lambda: self.now)
        self.hosted = HostedReplicas(image, broker_epoch, self._open_log)
        self.fetch_sessions = FetchSessions(self.settings.max_incremental_fetch_session_cache_slots, seed)
        self.held_heartbeats = HeldHeartbeats(self)
        self.groups = GroupCoordinator(self, seed)
        self.transactions = TransactionCoordinator(self)
        self.transactional_appends = TransactionalAppends(self)
        self.preparation = Preparation(self)
        self.producer_ids = ProducerIds(effects, lambda: self.now)
        self.maintenance = Maintenance(self)
        self.hot_keys = HotKeys(self)
        self.lag_watch = LagWatch(self)
        self.compact = compact
        self.apart = apart
        self.log_levels = log_levels
        self.compaction = Compaction(self)
        self.scrub = Scrub(self)
        self.encoded_topics = EncodedTopics(image)
        self.refused_appends: Counter[str] = Counter()
        """Batches of producers that were refused since the start, by the name of the error."""
        self.served_apis = SERVED_APIS
        self._dirty: dict[Partition, None] = {}
        """Partitions that the next flush round syncs."""
        self._unsynced: dict[Partition, None] = {}
        """Partitions with appends under ack.durability=os that are not synced yet."""
        self._partitions_with_acks: dict[Partition, None] = {}
        self._expiring_acks = False
        self._parked: dict[int, dict[Parked, None]] = {}
        self._early_answers = EarlyAnswers()
        for topic in image.sorted_topics():
            self._topic_created(topic)
        self.timers.at(now.boot_ms + ACK_EXPIRY_INTERVAL_MS, self._expire_acks)
        self.maintenance.schedule(now)
        self.compaction.schedule(now)
        self.transactions.schedule(now)
        self.lag_watch.schedule(now)

    @property
    def settings(self) -> BrokerSettings:
        return self.image.settings

    @property
    def fetch_max_bytes(self) -> int:
        return self.image.settings.fetch_max_bytes

    # Requests

    def handle(self, header: RequestHeader, frame: memoryview, reply: Reply, now: Moment) -> None:
        """Answers the request, now or later. The frame is not kept. Between `reply.hold` and `reply.release` the driver
        brings no other request of the connection."""
        self.now = now
        if reply.connection_id in self._parked:
            self._make_way(reply.connection_id, header.api_key, now)
        handler = HANDLERS.get(header.api_key)
        if handler is None or not handler.api.min_version <= header.api_version <= handler.api.max_version:
            if header.api_key == ApiKey.API_VERSIONS:
                reply.send(encode_unsupported_version(header.correlation_id))
            else:
                reply.hang_up(f"API key {header.api_key} version {header.api_version} is not served here")
            return
        try:
            steps = handler.handle(self, Request(header, frame, reply, now, self.turns))
        except BadRequest as problem:
            reply.hang_up(problem.message)
            return
        if steps is not None:
            self.turns.begin(reply, steps)

    def _make_way(self, connection_id: int, api_key: int, now: Moment) -> None:
        """Answers waiting requests of the connection: answers leave in order, and the new request must not wait behind
        them.

        A fetch does wait behind a fetch: a reader that fetches ahead would else be answered at once, again and again. A
        connection beyond its limit of early answers waits, as with Kafka (`EarlyAnswers`).
        """
        held = self.held_heartbeats.of_connection.get(connection_id)
        if held is not None:
            held.hurry(now)
        waiting = self._parked.get(connection_id)
        if not waiting or api_key == ApiKey.FETCH or not self._early_answers.may_give(connection_id, now.boot_ms):
            return
        for parked in list(waiting):
            parked.hurry(now)

    def connection_closed(self, connection_id: int) -> None:
        """Drops the waiting requests of a closed connection: nobody reads their answers."""
        self.held_heartbeats.connection_closed(connection_id)
        self.turns.forget(connection_id)
        self.fetch_sessions.connection_closed(connection_id)
        for parked in list(self._parked.pop(connection_id, ())):
            parked.abandon()

    def park(self, connection_id: int, waiting: Parked) -> None:
        self._parked.setdefault(connection_id, {})[waiting] = None
        self.effects.wake()

    def unpark(self, connection_id: int, waiting: Parked) -> None:
        waiting_there = self._parked.get(connection_id)
        if waiting_there is not None:
            waiting_there.pop(waiting, None)
            if not waiting_there:
                del self._parked[connection_id]

    def stop_waiting(self, now: Moment) -> None:
        """The broker stops: answers waiting fetches with the records at hand, and waiting members with a refusal."""
        self.now = now
        self.held_heartbeats.stop()
        for parked in [parked for waiting in self._parked.values() for parked in waiting]:
            parked.hurry(now)
        self.groups.stop_waiting()

    # Topics and partitions

    def apply(self, delta: ImageDelta, now: Moment) -> None:
        """Applies a change of the cluster's metadata. The image is up to date already."""
        self.now = now
        if delta.deleted:
            self._topics_deleted(delta.deleted)
        for topic in delta.created:
            self._topic_created(topic)
        self.groups.topics_changed([topic.name for topic in delta.created], [topic.name for topic in delta.deleted])
        for change in delta.changed:
            self._topic_changed(change, now)
        if self.broker_id in delta.registered:
            self._deposed(self.hosted.registered(now))
        if delta.broker_settings_changed:
            for name, partitions in self.hosted.topics.items():
                self.preparation.topic_settled(self.image.topics[name])
                for partition in partitions.values():
                    self._change_settings(partition, self.image.topics[name].settings, now)

    def _topic_created(self, topic: TopicImage) -> None:
        self._describe(topic)
        self.preparation.topic_settled(topic)
        self.hosted.created(topic, self.now)

    def _describe(self, topic: TopicImage) -> None:
        self.logs.describe_topic(topic.topic_id, TopicDescription(len(topic.partitions), topic.overrides))

    def _topic_changed(self, change: TopicChange, now: Moment) -> None:
        topic = change.after
        self._describe(topic)
        self.preparation.topic_settled(topic)
        self._deposed(self.hosted.changed(change, now))
        if topic.settings != change.before.settings:
            for partition in self.hosted.topics.get(topic.name, {}).values():
                self._change_settings(partition, topic.settings, now)

    def _change_settings(self, partition: Partition, settings: TopicSettings, now: Moment) -> None:
        # Visible records may now have to be durable, and records that waited for replicas or the disk may be committed
        # now.
        log = partition.opened
        if log is not None and settings.acks_mean_disk and log.offsets.end > log.offsets.durable_end:
            self._dirty[partition] = None
            self.effects.wake()
        partition.change_settings(settings, now)

    def _topics_deleted(self, topics: Iterable[TopicImage]) -> None:
        deleted: dict[TopicId, list[TopicPartition]] = {}
        gone: list[tuple[Partition, list[WaitingAck]]] = []
        for topic in topics:
            partitions = self.hosted.deleted(topic)
            deleted[topic.topic_id] = [partition.name for partition in partitions]
            self.logs.describe_topic(topic.topic_id, None)
            self.encoded_topics.forget(topic.name)
            self.preparation.topic_deleted(topic)
            self.groups.positions.topic_deleted(topic.name, topic.topic_id)
            self.scrub.topic_deleted(topic.name)
            for partition in partitions:
                self._forget(partition)
                acks = partition.take_acks()
                if acks or partition.waiting_readers:
                    gone.append((partition, acks))
        # The logs are forgotten before a waiting request hears of the deletion and may ask for a new topic.
        self.maintenance.delete_logs(deleted)
        self.in_turns.begin_steps(self._end_waits(gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    def _forget(self, partition: Partition) -> None:
        self._dirty.pop(partition, None)
        self._unsynced.pop(partition, None)
        self._partitions_with_acks.pop(partition, None)

    def _deposed(self, deposed: list[Deposed]) -> None:
        """Ends the waits of partitions that this broker leads no longer, and unloads their coordinators."""
        if not deposed:
            return
        for partition, _, hosted in deposed:
            if not hosted:
                self._forget(partition)
            self.groups.deposed(partition)
            self.transactions.deposed(partition)
        waits = [(partition, acks) for partition, acks, _ in deposed if acks or partition.waiting_readers]
        self.in_turns.begin_steps(self._end_waits(waits, ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _end_waits(self, gone: list[tuple[Partition, list[WaitingAck]]], error: ErrorCode) -> Iterator[None]:
        for number, (partition, acks) in enumerate(gone, 1):
            for ack in acks:
                ack.done(error)
            partition.wake_readers(self.now)
            if number % ENDED_PER_STEP == 0:
                yield

    def _open_log(self, partition: Partition) -> Log:
        log = self.logs.open_log(partition.name, partition.topic_id, partition.settings, self.now)
        self.maintenance.report_recovery(log)
        self.maintenance.report_set_aside()
        self.scrub.log_opened(log)
        log.reports.on_late_report = partial(self._report_late, log)
        if log.offsets.end > log.offsets.durable_end:
            self._dirty[partition] = None
            self.effects.wake()
        return log

    def _report_late(self, log: Log) -> None:
        self.maintenance.report_recovery(log)
        self.scrub.look_at(log)

    def create_internal_topic(self, name: str, done: Callable[[ProtocolError | None], None]) -> None:
        def created(result: TopicImage | Exception) -> None:
            if isinstance(result, Exception) and not isinstance(result, ProtocolError):
                self.report_storage_failure(result)
                result = ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} could not be created: {result}")
            done(result if isinstance(result, ProtocolError) else None)

        self.effects.metadata(lambda writer: writer.ensure_internal_topic(name), created)

    def auto_create(
        self, names: list[str], done: Callable[[dict[str, CreatedTopic | ProtocolError] | Exception], None]
    ) -> None:
        """Creates topics that a client asked about and that do not exist."""
        self.effects.metadata(lambda writer: writer.create_topics([NewTopic(name) for name in names]), done)

    # Appending and waiting

    def append(self, partition: Partition, batch: memoryview, acks: int, now: Moment) -> tuple[Appended, bool]:
        """Appends a client's batch. The bool is True if the batch is already as safe as its acks ask for."""
        replica = partition.replica
        if acks == ALL_REPLICAS and not replica.enough_in_sync:
            raise ProtocolError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{partition.name} has fewer in-sync replicas than min.insync.replicas="
                f"{partition.settings.min_insync_replicas}.",
            )
        log = replica.log
        appended = log.append(batch, leader_epoch=replica.leader_epoch, now=now)
        if not appended.duplicate:
            partition.appended_bytes += len(batch)
        self._appended(partition, log, now)
        last_offset = appended.last_offset
        safe = not partition.must_sync or log.offsets.durable_end > last_offset
        if acks == ALL_REPLICAS and replica.high_watermark <= last_offset:
            safe = False
        return appended, safe

    def append_internal(
        self, partition: Partition, batch: bytearray, now: Moment, marker: TransactionMarker | None = None
    ) -> Appended:
        """Appends records of a coordinator, or the marker of a transaction."""
        replica = partition.replica
        log = replica.log
        appended = log.append_internal(batch, leader_epoch=replica.leader_epoch, now=now, marker=marker)
        partition.appended_bytes += len(batch)
        self._appended(partition, log, now)
        return appended

    def _appended(self, partition: Partition, log: Log, now: Moment) -> None:
        settings = partition.settings
        if log.segments.closing:
            # A segment was rolled: a checkpoint saves its indexes, and recovery after a crash skips the segment.
            self.maintenance.checkpoint_soon()
        if settings.ack_durability == "disk":
            self._dirty[partition] = None
            self.effects.wake()
            return
        partition.moved(now)
        partition.unsynced_messages = log.offsets.end - log.offsets.durable_end
        self._unsynced[partition] = None
        if len(self._unsynced) > self.image.settings.open_files_max // 2:
            # Files with unsynced writes stay open. Before they use up the handles, one round syncs all of them.
            self._dirty.update(self._unsynced)
            self._unsynced.clear()
            self.effects.wake()
        elif partition.unsynced_messages >= settings.flush_messages:
            self._dirty[partition] = None
            self.effects.wake()
        elif settings.flush_ms != NO_LIMIT and not partition.flush_due:
            partition.flush_due = True
            self.timers.at(now.boot_ms + settings.flush_ms, lambda _: self._flush_due(partition))
            self.effects.wake()

    def _flush_due(self, partition: Partition) -> None:
        partition.flush_due = False
        if self.hosted.hosts(partition):
            self._dirty[partition] = None
            self.effects.wake()

    def when_safe(self, partition: Partition, offset: int, acks: int, deadline_ms: int, done: Done) -> None:
        """Calls back when a record is as safe as its acks ask for."""
        if partition.replica.high_watermark > offset or acks != ALL_REPLICAS:
            partition.when_durable(offset, deadline_ms, done)
        else:
            partition.when_committed(offset, deadline_ms, done)
        self._partitions_with_acks[partition] = None

    def when_committed(self, partition: Partition, offset: int, deadline_ms: int, done: Done) -> None:
        if not partition.leads:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        partition.when_committed(offset, deadline_ms, done)
        self._partitions_with_acks[partition] = None

    def when_durable(self, partition: Partition, offset: int, deadline_ms: int, done: Done) -> None:
        """Calls back when a record is on this node's disk, whatever the acks of its topic mean."""
        if not partition.leads:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if partition.replica.log.offsets.durable_end > offset:
            done(ErrorCode.NONE)
            return
        self._dirty[partition] = None
        self.effects.wake()
        partition.when_durable(offset, deadline_ms, done)
        self._partitions_with_acks[partition] = None

    def take_flush_tickets(self) -> list[FlushTicket]:
        """Takes the tickets of the logs that the next flush round makes durable, those that wait for longest."""
        tickets: list[FlushTicket] = []
        while self._dirty and len(tickets) < FLUSHED_AT_ONCE:
            partition = next(iter(self._dirty))
            del self._dirty[partition]
            log = partition.opened
            ticket = None if log is None else log.begin_flush()
            if ticket is not None:
                tickets.append(ticket)
        return tickets

    def flushed(self, tickets: list[FlushTicket], now: Moment) -> None:
        """Notes that a flush round made these logs durable up to their tickets' ends."""
        self.now = now
        self.logs.note_durable(tickets)
        for ticket in tickets:
            ticket.finish()
            self.became_durable(ticket.directory.partition, ticket.offsets, now)

    def became_durable(self, name: TopicPartition, offsets: LogOffsets, now: Moment) -> None:
        """Wakes acks and readers that waited for the durable end of the log with these offsets."""
        partition = self.hosted.get(*name)
        if partition is not None and partition.opened is not None and partition.opened.offsets is offsets:
            partition.unsynced_messages = offsets.end - offsets.durable_end
            if not partition.unsynced_messages:
                self._unsynced.pop(partition, None)
            partition.synced(offsets.durable_end, now)

    # Time

    def tick(self, now: Moment) -> int | None:
        """Runs the timers that are due; returns the next deadline."""
        self.now = now
        return self.timers.run(now)

    def _expire_acks(self, now: Moment) -> None:
        self.timers.at(now.boot_ms + ACK_EXPIRY_INTERVAL_MS, self._expire_acks)
        if self._partitions_with_acks and not self._expiring_acks:
            self._expiring_acks = True
            self.in_turns.begin_steps(self._expire_in_steps())

    def _expire_in_steps(self) -> Iterator[None]:
        """A disk that hangs lets the acks of all partitions expire at the same time."""
        for number, partition in enumerate(list(self._partitions_with_acks), 1):
            if not partition.expire_acks(self.now):
                self._partitions_with_acks.pop(partition, None)
            if number % ENDED_PER_STEP == 0:
                yield
        self._expiring_acks = False

    def recover_all(self) -> Iterator[TopicPartition]:
        """Before the first request: sorts out strays and, after an unclean stop, recovers every log, one by one."""
        self.maintenance.sort_out_strays()
        for partition in list(self.hosted):
            if not self.logs.clean and self.logs.has_log(partition.name):
                try:
                    partition.log  # noqa: B018
                except StorageFailure as failure:
                    self.report_storage_failure(failure)
                yield partition.name

    def storage_failed(self, failure: Exception) -> None:
        """Handles a failed write that promises depend on: a failed sync stops the broker, other failures are logged."""
        if isinstance(failure, SyncFailure):
            raise failure
        self.report_storage_failure(failure)

    def report_storage_failure(self, failure: Exception) -> None:
        """Logs a failure, at most once in a while for each text: a full disk must not fill the log as well."""
        level = logging.ERROR if isinstance(failure, EnvironmentFailure) else logging.CRITICAL
        self.maintenance.report(level, str(failure))

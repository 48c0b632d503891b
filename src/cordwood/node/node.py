"""A broker without sockets, threads and clocks: requests come in with the time, answers and effects go out.

A node puts its rooms together and is driven: by requests (`handle`), changes of the metadata (`apply`), deadlines
(`tick`) and flush rounds (`take_flush_tickets`, `flushed`). One thread drives it, the event loop's; blocking work goes
through `Effects`. docs/architecture.md draws the rooms. Each room takes the other rooms that it needs, and none takes
the node.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from cordwood.cluster.metadata.image import ClusterImage, ImageDelta, TopicChange, TopicImage
from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.reading.record_work import HERE, RecordWork
from cordwood.log.rewriting.compaction import CompactionJob, CompactionResult
from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.model.errors import ErrorCode, StorageFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.node.apis import SERVED_APIS, served_by, served_versions
from cordwood.node.coordinators.coordinator_log import Ground
from cordwood.node.coordinators.group_coordinator import GroupCoordinator
from cordwood.node.coordinators.held_heartbeats import HeldHeartbeats
from cordwood.node.coordinators.marker_sender import MarkerSender
from cordwood.node.coordinators.producer_ids import ProducerIds
from cordwood.node.coordinators.transaction_coordinator import TransactionCoordinator
from cordwood.node.coordinators.transaction_markers import MarkerWriter
from cordwood.node.coordinators.transactional_appends import TransactionalAppends
from cordwood.node.coordinators.verification import Verification
from cordwood.node.coordinators.verification_guards import Guards
from cordwood.node.duties.compaction import Compaction
from cordwood.node.duties.hot_keys import HotKeys
from cordwood.node.duties.internal_topics import InternalTopics
from cordwood.node.duties.lag_watch import LagWatch
from cordwood.node.duties.log_moves import LogMoves
from cordwood.node.duties.maintenance import Maintenance
from cordwood.node.duties.removals import Removals
from cordwood.node.duties.scrub import Scrub
from cordwood.node.duties.topic_traffic import TopicTraffic
from cordwood.node.duties.watch_reports import WatchReports
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.peers import Peers
from cordwood.node.loop.ports import Effects, Reply
from cordwood.node.loop.reports import Reports
from cordwood.node.loop.serving import Serving
from cordwood.node.loop.turns import Turns
from cordwood.node.partitions.acks import Acks, Ended
from cordwood.node.partitions.appends import Appends
from cordwood.node.partitions.checkpoints import Checkpoints
from cordwood.node.partitions.damage_book import DamageBook
from cordwood.node.partitions.doubtful_logs import DoubtfulLogs
from cordwood.node.partitions.flushes import FlushBook
from cordwood.node.partitions.full_disk import FullDisk
from cordwood.node.partitions.hosted import Deposed, HostedReplicas
from cordwood.node.partitions.known_topics import describe_topic
from cordwood.node.partitions.log_ends import LogEnds
from cordwood.node.partitions.log_opening import LogOpening
from cordwood.node.partitions.lost_directories import LostDirectories
from cordwood.node.partitions.partition import Partition
from cordwood.node.partitions.preparation import Preparation
from cordwood.node.partitions.unreadable import UnreadableFiles
from cordwood.node.quotas.client_quotas import ClientQuotas
from cordwood.node.replication.cuts import Cuts
from cordwood.node.replication.fetcher_rooms import FetcherRooms
from cordwood.node.replication.fetchers import Fetchers
from cordwood.node.replication.fetching_followers import LeaderThrottle
from cordwood.node.replication.in_sync_changes import InSyncChanges
from cordwood.node.replication.last_news import LastNews
from cordwood.node.replication.near_reads import NearReads
from cordwood.node.replication.refills import Refills
from cordwood.node.replication.repair import Repair
from cordwood.node.replication.saved_starts import SavedStarts
from cordwood.node.replication.setting_aside import SettingAside
from cordwood.node.replication.suspects import Suspects
from cordwood.node.replication.withheld import Withheld
from cordwood.node.requests.access import Access
from cordwood.node.requests.astray_producers import AstrayProducers
from cordwood.node.requests.catching_up import CatchingUp
from cordwood.node.requests.census import Census, NoCensus
from cordwood.node.requests.encoded_topics import EncodedTopics
from cordwood.node.requests.fetch_sessions import FetchSessions
from cordwood.node.requests.leader_hints import LeaderHints
from cordwood.node.requests.librdkafka_clients import LibrdkafkaClients
from cordwood.node.requests.logger_configs import LogLevels
from cordwood.node.requests.loopback import Loopback, PeersAndSelf
from cordwood.node.requests.parked import ParkedRequests
from cordwood.node.requests.proven_brokers import is_proven
from cordwood.node.requests.router import Router
from cordwood.node.requests.told_brokers import ToldBrokers
from cordwood.node.requests.wide_requests import WideRequests
from cordwood.node.security.authentications import Authentications
from cordwood.node.security.delegation_tokens import DelegationTokens
from cordwood.replication.throttle import Throttle
from cordwood.wire.requests import RequestHeader

if TYPE_CHECKING:
    from cordwood.security.token_secrets import TokenSecrets
    from cordwood.security.trail.port import Trail


class Node:
    """One broker of the cluster, as a state machine."""

    def __init__(
        self,
        image: ClusterImage,
        logs: DataDirectories,
        effects: Effects,
        now: Moment,
        *,
        serving: Serving,
        compact: Callable[[CompactionJob], CompactionResult],
        log_levels: LogLevels,
        other_brokers: Peers,
        seed: int,
        random_bytes: Callable[[int], bytes],
        apart: RecordWork = HERE,
        census: Census | None = None,
        trail: Trail | None = None,
        token_secrets: TokenSecrets | None = None,
    ) -> None:
        """`random_bytes`: bytes that nobody can foresee. `trail` hears of changes, refusals and log-ins."""
        self.image = image
        self.serving = serving
        self.logs = logs
        self.log_levels = log_levels
        self.apart = apart
        self.census: Census = census or NoCensus()
        self.served_apis = SERVED_APIS
        self.loop = loop = Loop(effects, now)
        self.reports = reports = Reports(loop, self.survived, lambda failure: self.lost_directories.suspect(failure))
        home = Loopback(self.handle, served_versions, loop)
        self.peers = peers = PeersAndSelf(image.node_id, home, other_brokers)
        # Logs. The node takes found damage, doubts and failures on to the rooms that answer them, which are made below.
        self.flushes = flushes = FlushBook(loop, image, logs)
        self.damage = damage = DamageBook(loop, logs, lambda: self.repair.due())
        self.unreadable = UnreadableFiles(loop, reports)
        self._opening = opening = LogOpening(
            loop,
            logs,
            damage,
            flushes,
            lambda partition, log: self.doubtful_logs.found(partition, log),
            in_cluster=bool(image.settings.cluster_store),
        )
        self.hosted = hosted = HostedReplicas(
            image, serving, loop, opening.open, logs.saved_high_watermark, self._role_changed
        )
        self.acks = Acks(loop, flushes, hosted)
        self._checkpoints = checkpoints = Checkpoints(loop, image, logs, flushes, reports)
        self.full_disk = full_disk = FullDisk(loop, logs.free_bytes, reports, shared=serving.shared)
        self.appends = Appends(loop, flushes, checkpoints, full_disk)
        self.maintenance = Maintenance(loop, image, logs, hosted, checkpoints, reports)
        self._removals = Removals(loop, image, logs, hosted, opening, reports)
        self.compaction = Compaction(
            loop, image, logs, hosted, checkpoints, reports, compact, self.maintenance.remove_dropped
        )
        ids = random.Random(seed)
        self.log_moves = LogMoves(
            loop, image, logs, hosted, flushes, checkpoints, reports, lambda: f"{ids.getrandbits(128):032x}"
        )
        self._internal_topics = InternalTopics(loop, image, reports)
        self.scrub = Scrub(loop, image, logs, hosted, damage, reports)
        # Replication
        self.in_sync_changes = InSyncChanges(loop, image, hosted, reports)
        starts = SavedStarts(loop, logs, hosted, reports)
        after_cut = self._load_coordinators
        cuts = Cuts(loop, image, logs, hosted, flushes, checkpoints, damage, reports, after_cut)
        aside = SettingAside(loop, logs, hosted, flushes, checkpoints, damage, opening, reports, after_cut)
        self._refills = refills = Refills(loop, image, logs, hosted, aside, reports)
        withheld = Withheld(loop, hosted, aside, reports)
        suspects = Suspects(loop, image)
        rooms = FetcherRooms(
            loop,
            image,
            hosted,
            serving,
            peers,
            suspects,
            Throttle(),
            flushes,
            checkpoints,
            full_disk,
            starts,
            cuts,
            refills,
            withheld,
            reports,
        )
        self._fetchers = fetchers = Fetchers(rooms)
        self.last_news = LastNews(loop, hosted, fetchers)
        self.librdkafka_clients = LibrdkafkaClients()
        self.near_reads = NearReads(loop, image, hosted, fetchers, self.librdkafka_clients)
        self.repair = Repair(loop, image, logs, hosted, damage, peers, serving, reports)
        self.lost_directories = LostDirectories(
            loop, image, logs, hosted, flushes, self.log_moves.directory_lost, self._deposed, shared=serving.shared
        )
        self.doubtful_logs = DoubtfulLogs(loop, image, hosted, reports, self._deposed, shared=serving.shared)
        self._log_ends = LogEnds(loop, hosted, reports)
        logs.keep_high_watermarks(self._high_watermark_of)
        # Requests
        self.access = Access(image, trail)
        self.quotas = ClientQuotas(loop, image, partial(is_proven, image))
        self.parked = ParkedRequests(loop)
        self.held_heartbeats = HeldHeartbeats(loop, self.parked)
        self.fetch_sessions = FetchSessions(image.settings.max_incremental_fetch_session_cache_slots, seed)
        self.leader_hints = LeaderHints(image)
        self.told_brokers = ToldBrokers(loop, image, self.librdkafka_clients)
        self.astray_producers = AstrayProducers(self.librdkafka_clients)
        self.leader_throttle = LeaderThrottle(image)
        self.encoded_topics = EncodedTopics(image, suspects.now)
        self.preparation = Preparation(loop, image, reports, apart)
        self.refused_appends: Counter[str] = Counter()
        """Batches of producers that were refused since the start, by the name of the error."""
        # Coordinators
        ground = Ground(loop, image, hosted, logs, self.appends, self.acks, reports)
        self.producer_ids = ProducerIds(loop)
        self.groups = GroupCoordinator(ground, self.held_heartbeats, self.access, seed)
        guards = Guards()
        self.markers = MarkerWriter(ground, self.groups.shards.log, guards)
        marker_sender = MarkerSender(image, peers, home, self.markers)
        self.transactions = TransactionCoordinator(ground, self.producer_ids, marker_sender, home)
        self.verification = Verification(image, hosted, guards, peers, home, self.transactions)
        self.transactional_appends = TransactionalAppends(self.verification)
        # Lag
        self.hot_keys = HotKeys(loop, image, hosted)
        topic_traffic = TopicTraffic(image)
        self.watch_reports = WatchReports(image, serving, peers, topic_traffic)
        self.lag_watch = LagWatch(
            loop, image, logs, hosted, self.groups, self.hot_keys, reports, self.watch_reports, topic_traffic
        )

        self.delegation_tokens = DelegationTokens(loop, image, reports, self.parked, token_secrets)
        self.authentications = Authentications(loop, image, random_bytes, self.delegation_tokens, trail)
        self.catching_up = CatchingUp(loop, image)
        self.wide_requests = WideRequests(loop.turns)
        served = served_by(self, trail)
        self._router = Router(
            loop, image, self.access, self.quotas, self.parked, self.catching_up, self.wide_requests, served, trail
        )
        for topic in image.sorted_topics():
            self._topic_created(topic)
        self.acks.schedule(now)
        self.maintenance.schedule(now)
        checkpoints.schedule(now)
        self.groups.positions.schedule(now)
        self.compaction.schedule(now)
        self.transactions.schedule(now)
        self._load_coordinators()
        self.lag_watch.schedule(now)
        self.loop.timers.at(now.boot_ms, lambda _: self._refills.find())
        if logs.undone_moves:
            # The moves resume later: the node is not driven yet.
            self.loop.timers.at(now.boot_ms, lambda _: self.log_moves.resume(logs.undone_moves))
        self.in_sync_changes.schedule(now)
        self.delegation_tokens.schedule()

    # The view of the driver

    @property
    def now(self) -> Moment:
        """The moment of the current event."""
        return self.loop.now

    @property
    def turns(self) -> Turns:
        return self.loop.turns

    @property
    def settings(self) -> BrokerSettings:
        return self.image.settings

    def handle(self, header: RequestHeader, frame: memoryview, reply: Reply, now: Moment) -> None:
        """Answers the request, now or later. The frame is not kept. Between `reply.hold` and `reply.release` the driver
        brings no other request of the connection."""
        self._router.handle(header, frame, reply, now)

    def connection_closed(self, connection_id: int) -> None:
        """Drops the waiting requests of a closed connection: their answers would not be read."""
        self.held_heartbeats.connection_closed(connection_id)
        self.librdkafka_clients.connection_closed(connection_id)
        self.astray_producers.connection_closed(connection_id)
        self.catching_up.connection_closed(connection_id)
        self.wide_requests.connection_closed(connection_id)
        self.loop.turns.forget(connection_id)
        self.fetch_sessions.connection_closed(connection_id)
        self.parked.connection_closed(connection_id)
        self.authentications.connection_closed(connection_id)

    def tick(self, now: Moment) -> int | None:
        """Runs the timers that are due; returns the next deadline."""
        self.loop.now = now
        return self.loop.timers.run(now)

    def take_flush_tickets(self) -> list[FlushTicket]:
        """Takes the tickets of the logs that the next flush round makes durable."""
        return self.flushes.take_tickets()

    def flushed(self, tickets: list[FlushTicket], now: Moment) -> None:
        """Notes that a flush round made these logs durable up to their tickets' ends."""
        self.loop.now = now
        self.flushes.flushed(tickets, now)

    def survived(self, failure: StorageFailure, path: str | None = None) -> bool:
        """True if the node goes on after a failed sync: only the data directory at `path`, or that of the failure, is
        lost, with its partitions."""
        return self.lost_directories.survived(failure, path)

    def recover_all(self) -> Iterator[TopicPartition]:
        """Prepares for the first request: sorts out strays and, after an unclean stop, recovers every log in turn."""
        missing = self._removals.sort_out_strays()
        for partition in list(self.hosted):
            if partition.name in missing or self.logs.needs_check(partition.name):
                try:
                    partition.open_log()
                except StorageFailure as failure:
                    self.reports.failure(failure)
                yield partition.name

    def epochs_in_logs(self) -> dict[tuple[str, int], int]:
        """The latest leader epoch in each log that is here, for a metadata store that may be older than the logs."""
        known: dict[tuple[str, int], int] = {}
        for partition in self.hosted:
            if self.logs.has_log(partition.name):
                try:
                    known[partition.name] = partition.log.replayed.latest_epoch
                except StorageFailure as failure:
                    self.reports.failure(failure)
        return known

    def without_logs(self) -> list[tuple[str, int]]:
        """The replicated partitions that have no log here. By a metadata store that may be older than the logs this
        broker may be in sync, although the partitions have moved away since, and their logs are deleted."""
        return [each.name for each in self.hosted if each.replicated and not self.logs.has_log(each.name)]

    def stop_waiting(self, now: Moment) -> None:
        """Stops waiting: answers waiting fetches with the records at hand, and waiting members with a refusal."""
        self.loop.now = now
        self.catching_up.stop_waiting()
        self.held_heartbeats.stop()
        self.last_news.stop()
        self._fetchers.stop()
        self.repair.stop()
        self.parked.hurry_all(now)
        self.groups.shards.stop_waiting()

    # Changes of the metadata

    def apply(self, delta: ImageDelta, now: Moment) -> None:
        """Applies a change of the cluster's metadata. The image is up to date already.

        The order is: this broker's registration, deleted topics, new topics, regular expressions of groups, changed
        topics, leaderships that depend on this broker's epoch, coordinators of new leaderships, settings of the broker,
        requests that waited for this image.
        """
        self.loop.now = now
        if delta.access_changed:
            self.access.image_changed(now.wall_ms)
            self.quotas.image_changed()
            self.delegation_tokens.image_changed()
        if delta.brokers_changed:
            self.told_brokers.brokers_changed()
            self.near_reads.brokers_changed()
            self._look_for_own_row()
        if delta.deleted:
            self._topics_deleted(delta.deleted)
        for topic in delta.created:
            self._topic_created(topic)
        self.groups.shards.topics.topics_changed(
            [topic.name for topic in delta.created], [topic.name for topic in delta.deleted]
        )
        for change in delta.changed:
            self._topic_changed(change, now)
        if self.image.node_id in delta.registered:
            self.registered(now)
        elif delta.created or delta.changed:
            self._load_coordinators()
        if delta.broker_settings_changed:
            for name, partitions in self.hosted.topics.items():
                self.preparation.topic_settled(self.image.topics[name])
                for partition in partitions.values():
                    self._change_settings(partition, self.image.topics[name].settings, now)
        if delta.brokers_changed:
            self.repair.brokers_changed()
        if delta.brokers_changed or delta.changed:
            self.in_sync_changes.image_changed()
        if delta.changed:
            self.lost_directories.leave()
            self.doubtful_logs.leave()
        if delta.changed or delta.deleted:
            self._refills.image_changed()
        if delta.changed or delta.registered:
            self.transactions.completions.leaders_changed()
        self._internal_topics.look()
        self.catching_up.image_moved()

    def _role_changed(self, partition: Partition) -> None:
        self._fetchers.role_changed(partition)
        self._log_ends.role_changed(partition)

    def _look_for_own_row(self) -> None:
        """Stops serving if the row of this process's registration is gone from the metadata."""
        image, serving = self.image, self.serving
        # An image of another epoch is behind a new registration, or shows a later incarnation.
        if image.node_id not in image.brokers and image.broker_epochs.get(image.node_id) == serving.broker_epoch:
            serving.lost()

    def registered(self, now: Moment) -> None:
        """Looks at all leaderships again: this broker registered anew, or its fence was lifted."""
        self.loop.now = now
        self._deposed(self.hosted.registered(now))
        self._load_coordinators()
        if self.serving.shared:
            self.producer_ids.reserve()

    def _load_coordinators(self) -> None:
        """Loads coordinators when their partitions become led here: deadlines run without a request, and decided
        transactions are completed."""
        self.groups.shards.log.load_led()
        self.transactions.log.load_led()

    def _high_watermark_of(self, name: TopicPartition) -> tuple[int, int] | None:
        """The high watermark that the checkpoint keeps, and the leader epoch in which it was known. A lone replica has
        no high watermark: all of its log is committed."""
        partition = self.hosted.get(*name)
        if partition is None or not partition.replicated or partition.opened is None:
            return None
        return partition.high_watermark, partition.watermark_epoch

    def _topic_created(self, topic: TopicImage) -> None:
        describe_topic(topic, self.image.node_id, self.logs, self.reports)
        self.preparation.topic_settled(topic)
        self.hosted.created(topic, self.loop.now)
        self._partitions_arrived(topic.name)

    def _partitions_arrived(self, topic: str) -> None:
        self.log_moves.arrived(partition.name for partition in self.hosted.topics.get(topic, {}).values())

    def _topic_changed(self, change: TopicChange, now: Moment) -> None:
        topic = change.after
        describe_topic(topic, self.image.node_id, self.logs, self.reports)
        self.preparation.topic_settled(topic)
        self._deposed(self.hosted.changed(change, now))
        self._partitions_arrived(topic.name)
        if topic.settings != change.before.settings:
            for partition in self.hosted.topics.get(topic.name, {}).values():
                self._change_settings(partition, topic.settings, now)

    def _change_settings(self, partition: Partition, settings: TopicSettings, now: Moment) -> None:
        # Visible records may now have to be durable, and records that waited for replicas or the disk may be committed
        # now.
        log = partition.opened
        if log is not None and settings.acks_mean_disk and log.offsets.end > log.offsets.durable_end:
            self.flushes.sync(partition)
        partition.change_settings(settings, now)

    def _topics_deleted(self, topics: Iterable[TopicImage]) -> None:
        deleted: dict[TopicId, list[TopicPartition]] = {}
        delays_ms: dict[TopicId, int] = {}
        gone: list[Ended] = []
        for topic in topics:
            partitions = self.hosted.deleted(topic)
            deleted[topic.topic_id] = [partition.name for partition in partitions]
            delays_ms[topic.topic_id] = topic.settings.file_delete_delay_ms
            self.logs.describe_topic(topic.topic_id, None)
            self.encoded_topics.forget(topic.name)
            self.preparation.topic_deleted(topic)
            self.groups.positions.topic_deleted(topic.name, topic.topic_id)
            self.damage.topic_deleted(topic.name)
            for partition in partitions:
                self._fetchers.forget(partition)
                self.flushes.forget(partition)
                self.acks.forget(partition)
                gone.append((partition, partition.waits.take_acks()))
        # The logs are forgotten before a waiting request hears of the deletion and may ask for a new topic.
        self._removals.delete_logs(deleted, delays_ms)
        self.acks.end(gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _deposed(self, deposed: list[Deposed]) -> None:
        """Ends the waits of partitions that this broker no longer leads, and unloads their coordinators."""
        gone = [each.partition for each in deposed if not each.hosted]
        for partition in gone:
            self.flushes.forget(partition)
            self.acks.forget(partition)
        for partition in (each.partition for each in deposed):
            self.groups.shards.log.deposed(partition)
            self.transactions.log.deposed(partition)
        if removed := [each.partition for each in deposed if not each.hosted and not each.given_up]:
            self._removals.remove_replicas(removed)
        if given_up := [each.partition for each in deposed if each.given_up]:
            self._removals.set_given_up_aside(given_up)
        if deposed:
            self.acks.end([(each.partition, each.acks) for each in deposed], ErrorCode.NOT_LEADER_OR_FOLLOWER)

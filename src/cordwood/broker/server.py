"""A whole broker on the running loop: put together, kept going, and taken apart in the right order.

Starting: the data directory is locked, the addresses are bound (so that their ports can be registered), the metadata is
read, the node is made, and only then do the sockets listen. Stopping: no new request is taken, requests under way are
answered, all logs are made durable, and the data directory is marked as cleanly closed. An unrecoverable failure (a
failed sync, a broken invariant) ends all connections at once, so that no record is acknowledged after it.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from cordwood.broker.driver import Driver
from cordwood.broker.machine import clocks, descriptors
from cordwood.broker.machine.fair_workers import FairWorkers
from cordwood.broker.machine.log_levels import PythonLogLevels
from cordwood.broker.machine.loop_watch import LoopWatch
from cordwood.broker.machine.threads import Workers
from cordwood.broker.network.client_counts import ClientBook
from cordwood.broker.network.connection import Connection
from cordwood.broker.network.connections import ConnectionLimits, Connections
from cordwood.broker.network.connections import Node as RequestHandler
from cordwood.broker.network.listener_warnings import warn_of_listeners
from cordwood.broker.network.listening import BACKLOG, advertised, bind, stop_listening
from cordwood.broker.network.opening_links import Security
from cordwood.broker.network.outbox import Outbox
from cordwood.broker.network.peer_troubles import PeerTroubles
from cordwood.broker.network.peers import PeerConnections, registered_at
from cordwood.broker.network.sending import SendingResources
from cordwood.broker.storage.flusher import CountingFlusher, Flusher, ImmediateFlusher
from cordwood.broker.storage.scrub_thread import ScrubThread
from cordwood.broker.storage.storage import Storage
from cordwood.broker.stored_settings import say_overridden
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage, ImageDelta
from cordwood.cluster.metadata.known_epochs import known_epochs
from cordwood.cluster.metadata.replaced_storage import told_by_broker
from cordwood.cluster.metadata.rows import Endpoint
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.registration import LEASE_MS
from cordwood.cluster.stores.interface import StoreFailure
from cordwood.log.reading.apart import Apart
from cordwood.log.reading.record_work import Here
from cordwood.model.errors import DiskFull, StorageFailure, SyncFailure
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.listeners import HTTPS, PLAINTEXT, Entrance, Listener
from cordwood.node.loop.serving import Serving
from cordwood.node.node import Node
from cordwood.node.partitions.known_topics import known_topics
from cordwood.node.replication.last_news import LAST_NEWS_MS
from cordwood.node.requests.proven_brokers import is_proven

if TYPE_CHECKING:
    from cordwood.broker.metrics.service import MetricsService
    from cordwood.broker.network.tls.layer import Above, TlsLayer, TlsResources
    from cordwood.broker.network.tls.listeners import TlsListeners
    from cordwood.broker.network.token_keys import KeyReader
    from cordwood.broker.storage.cluster_witness import ClusterWitness
    from cordwood.broker.storage.memory import Memory
    from cordwood.broker.trail.recorder import SecurityTrail
    from cordwood.cluster.registration import NoteEpoch
    from cordwood.security.token_secrets import TokenSecrets

logger = logging.getLogger("cordwood.broker")

FILE_THREADS: Final = 4
CLIENT_THREADS: Final = 4
THREADS_PER_CLIENT: Final = 2
"""Work on files for clients' requests has CLIENT_THREADS; one connection gets at most this many at a time."""

DRAIN_S: Final = 1.0
"""The wait of a stopping broker until owed answers are sent. Acks that wait for the disk are sent in any case."""

TAKE_PART_S: Final = 5.0
"""The wait of a starting broker of a cluster until the controller has taken note of it."""
HAND_OVER_S: Final = 5.0
"""The wait of a stopping broker of a cluster until others lead its partitions."""

FEW_CONNECTIONS: Final = 500


class Server:
    """A running broker, made by `start`. `failed` is done, with the reason, when the broker cannot go on."""

    def __init__(
        self,
        settings: BrokerSettings,
        storage: Storage,
        tls: "TlsListeners | None" = None,
        token_secrets: "TokenSecrets | None" = None,
    ) -> None:
        self.settings = settings
        self._token_secrets = token_secrets
        """Those of delegation tokens; None: there are no such tokens."""
        self._tls = tls
        """The listeners with TLS; None: there are none."""
        self._tls_resources: TlsResources | None = None
        self._storage = storage
        self._loop = loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[Exception] = loop.create_future()
        self._file_workers = Workers(loop, "files", FILE_THREADS)
        client_workers = Workers(loop, "questions", CLIENT_THREADS)
        self._apart = Here() if storage.in_memory else Apart()
        self._cold_readers = Workers(loop, "cold-read", settings.cold_read_threads)
        self._outbox = Outbox(loop)
        self._fair_workers = FairWorkers(client_workers, CLIENT_THREADS, THREADS_PER_CLIENT)
        self.driver = Driver(loop, self._outbox, self._file_workers, self._fair_workers, self._fail)
        self._scrub_thread = ScrubThread(loop, self.driver.run)
        self._key_reader: KeyReader | None = None
        """Reads the keys of tokens; None: no listener takes tokens."""
        self._loop_watch = LoopWatch(loop)
        self._peer_troubles = PeerTroubles()
        self._client_counts = ClientBook(self._peer_troubles)
        self.driver.loop_watch = self._loop_watch
        self.node: Node
        self._metadata_writer: MetadataWriter | None = None
        self._connections: Connections | None = None
        self._shortage_said = ""
        self._peers: PeerConnections | None = None
        self._flusher: CountingFlusher | None = None
        self._bound: list[tuple[Listener, socket.socket]] = []
        self._listening: list[asyncio.Server] = []
        self._stopping = False
        self._stopped_cleanly = False
        self._metrics: MetricsService | None = None
        self._trail = self._security_trail()
        self._witness: ClusterWitness | None = None

    def _security_trail(self) -> "SecurityTrail | None":
        """The trail of changes and refusals; None if nobody wants one, or it would have no directory."""
        settings = self.settings
        nowhere = self._storage.in_memory and not settings.security_trail_directory
        if nowhere or not settings.keeps_security_trail:
            return None
        # Imported only if a trail is kept, to keep the start quick.
        from cordwood.broker.trail.recorder import SecurityTrail

        return SecurityTrail.kept_by(self._loop, settings)

    @classmethod
    async def start(
        cls,
        settings: BrokerSettings,
        *,
        memory: "Memory | None" = None,
        before_listening: "Callable[[Server], None]" = lambda server: None,
        first_writes: Callable[[MetadataWriter], Awaitable[None]] | None = None,
    ) -> "Server":
        """Returns when clients can connect. Raises EnvironmentFailure or OSError, with nothing left behind.

        `memory` holds the data of a broker without a disk. `first_writes` writes metadata that the first client is to
        find."""
        tls = _tls_listeners(settings)
        _check_key_files(settings)
        token_secrets = _token_secrets(settings)
        storage = await Storage.open(settings, memory=memory)
        server = cls(settings, storage, tls, token_secrets)
        try:
            await server._start(before_listening, first_writes)
        except BaseException:
            await server._release()
            raise
        return server

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first listener."""
        return next(iter(self.addresses.values()))

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port that the broker listens on, by the listener's name."""
        names = {listener.name: bound.getsockname() for listener, bound in self._bound}
        return {name: (str(address[0]), int(address[1])) for name, address in names.items()}

    @property
    def endpoints(self) -> list[Endpoint]:
        """The addresses that clients are told, one for each listener."""
        return [advertised(*each) for each in self._bound]

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of the metrics endpoint; None if metrics are not served."""
        return None if self._metrics is None else self._metrics.address

    def _not_ready(self) -> str:
        """The reason why the broker takes no clients just now; an empty text while it takes them."""
        if self.failed.done():
            return f"the broker cannot go on: {self.failed.result()}"
        if self._stopping:
            return "the broker stops"
        if not self._listening:
            return "the broker starts: it opens its logs"
        assert self._metadata_writer is not None
        if self._storage.standing.clustered and not self._metadata_writer.takes_part:
            return "the cluster has not taken note of this broker: no controller, or no contact with the metadata store"
        return ""

    def _remark(self) -> str:
        """The restriction of a broker that is ready. A broker with a full disk stays ready: clients that read, or
        delete to make room, have to reach it."""
        return ", and refuses records: its disk is full" if self.node.full_disk.full else ""

    async def _start(
        self,
        before_listening: "Callable[[Server], None]",
        first_writes: Callable[[MetadataWriter], Awaitable[None]] | None,
    ) -> None:
        settings, loop, storage = self.settings, self._loop, self._storage
        for listener in settings.listener_list:
            self._bound.append((listener, bind(listener.address)))
        if self._tls is not None:
            self._tls_resources = self._tls.begin(loop, self._trail)
        if settings.metrics_address is not None:
            # Imported only if metrics are served, to keep the start quick.
            from cordwood.broker.metrics.service import MetricsService

            self._metrics = await MetricsService.start(
                settings.metrics_address,
                self._not_ready,
                self._remark,
                self._secured(HTTPS) if self._tls is not None and HTTPS in self._tls else None,
            )
            scheme = settings.metrics_address.name.replace(PLAINTEXT, "http").lower()
            logger.info("metrics and health at %s://%s:%d/metrics, /live and /ready", scheme, *self._metrics.address)
        image = ClusterImage(settings.node_id, settings)
        follower = ImageFollower(storage.metadata, image, on_change=self.driver.apply, boot_ms=clocks.boot_ms)
        clustered = storage.standing.clustered
        lease_ms = settings.broker_lease_ms if clustered else LEASE_MS
        serving = Serving(lease_ms) if clustered else Serving()
        self._metadata_writer = writer = MetadataWriter(
            storage.metadata,
            follower,
            lease_ms=lease_ms,
            standing=storage.standing,
            holder=serving,
            boot_ms=clocks.boot_ms,
            note_epoch=self._note_epochs(image) if clustered and not storage.in_memory else None,
            token_key="" if self._token_secrets is None else self._token_secrets.fingerprint,
        )
        await writer.start(self.endpoints)
        follower.stopped.add_done_callback(self._metadata_lost)
        if (
            clustered
            and not storage.in_memory
            and (replaced := told_by_broker(image, storage.standing.storage_id)) is not None
        ):
            logger.error("%s", replaced)
        storage.claim(image.cluster_id, known_topics(image))
        if first_writes is not None:
            await first_writes(writer)
        security = self._security_between_brokers()
        self._peers = PeerConnections(
            loop,
            settings.node_id,
            registered_at(image, settings.brokers_listener.name, elsewhere=security.is_plain),
            self.driver.run,
            self.driver.now,
            image_revision=lambda: follower.changed_revision,
            key=lambda: serving.key,
            security=security,
            troubles=self._peer_troubles,
        )
        self.node = Node(
            image,
            storage.logs,
            self.driver,
            self.driver.now(),
            serving=serving,
            compact=storage.compact,
            apart=self._apart,
            log_levels=PythonLogLevels(),
            other_brokers=self._peers,
            census=self._client_counts,
            seed=int.from_bytes(os.urandom(8), "big"),
            random_bytes=os.urandom,
            trail=self._trail,
            token_secrets=self._token_secrets,
        )
        self._flusher = self._make_flusher()
        self.driver.drive(self.node, self._flusher, writer)
        await self._recover()
        without_logs = self.node.without_logs() if storage.may_be_newer else []
        if storage.may_be_newer:
            await writer.partitions.raise_epochs(self.node.epochs_in_logs())
        if self._witness is not None:
            # The witness says that the epochs are raised: a start that ends earlier raises them again.
            self._keep_witness(follower, self._witness)
        if settings.key_sources:
            from cordwood.broker.network.token_keys import KeyReader

            self._key_reader = KeyReader(loop, self.driver.run)
            self.node.authentications.token_keys.begin(self._key_reader.fetch)
        if not storage.in_memory:
            self.node.scrub.begin(self._scrub_thread.submit, self.node.now)
            self.node.repair.begin(self._scrub_thread.submit)
        self.driver.quotas = self.node.quotas
        self._connections = connections = Connections(
            loop,
            self.node,
            ConnectionLimits(
                max_connections=self._max_connections(image.settings),
                max_connections_per_address=image.settings.max_connections_per_ip,
                max_creation_rate=image.settings.max_connection_creation_rate,
                max_idle_s=settings.connections_max_idle_ms / 1000,
                max_request_bytes=settings.socket_request_max_bytes,
                max_total_bytes=settings.queued_max_request_bytes,
            ),
            self._outbox,
            SendingResources(loop, self._cold_readers, max_waiting_bytes=settings.queued_max_response_bytes),
            self._request_failed,
            is_broker=partial(is_proven, image),
            now=self.driver.now,
            activity=None if self._metrics is None else self._metrics.activity,
            loop_watch=self._loop_watch,
            quotas=self.node.quotas,
            clients=self._client_counts,
            records_unreadable=self._records_unreadable,
        )
        follower.watchers.append(self._bound_connections)
        if self._metrics is not None:
            self._metrics.show(self.node, connections, self._flusher, self._loop_watch, self._tls, self._trail)
        say_overridden(image)
        before_listening(self)
        warn_of_listeners(settings, clustered=clustered)
        only = len(self._bound) == 1
        for listener, bound in self._bound:
            entrance = listener.entrance(only=only, clustered=clustered, asks=settings.asks_at(listener))
            make = self._maker_of_connections(connections, entrance, speaks_tls=listener.speaks_tls)
            self._listening.append(await loop.create_server(make, sock=bound, backlog=BACKLOG))
        if clustered:
            assert writer.evidence is not None
            self._peers.observe(writer.evidence, image.registered_epoch)
            follower.watchers.append(self._keep_peers)
            serving.on_registered = lambda: self.driver.run(lambda: self.node.registered(self.node.now))
            assert writer.registration.renewing is not None
            writer.registration.renewing.add_done_callback(self._registration_ended)
            # Clients that come earlier would find no controller, and wait for their own timeouts.
            if not await writer.take_part(TAKE_PART_S, [*self.node.doubtful_logs.names, *without_logs]):
                logger.warning("the cluster has not taken note of this broker yet: it leads nothing until then")

    def _maker_of_connections(
        self, connections: Connections, entrance: Entrance, *, speaks_tls: bool
    ) -> Callable[[], asyncio.BaseProtocol]:
        if not speaks_tls:
            return partial(Connection, connections, entrance)
        from cordwood.broker.network.tls.sender import TlsSender

        secured = self._secured(entrance.name)
        return lambda: secured(Connection(connections, entrance, TlsSender))

    def _secured(self, listener: str) -> "Callable[[Above], TlsLayer]":
        """Puts TLS below connections of a listener."""
        from cordwood.broker.network.tls.layer import TlsLayer

        assert self._tls is not None
        assert self._tls_resources is not None
        side, resources = self._tls[listener], self._tls_resources
        return lambda above: TlsLayer(above, side, resources)

    def _records_unreadable(self, path: str, failure: StorageFailure) -> None:
        # The note is a separate event: answers are sent while the node is in one.
        self._loop.call_soon(self.driver.run, lambda: self.node.unreadable.found(path, failure))

    def _keep_peers(self, delta: ImageDelta) -> None:
        """Keeps a connection to each other broker that takes part in the cluster."""
        image = self.node.image
        if delta.brokers_changed and self._peers is not None and not self.failed.done():
            registered = {broker_id for broker_id, broker in image.brokers.items() if not broker.fenced}
            self._peers.keep(registered - {image.node_id})

    def _note_epochs(self, image: ClusterImage) -> "NoteEpoch":
        """Notes in the witness the epochs in which the broker registers, and the end of its epoch when it stops."""
        from cordwood.broker.storage.cluster_witness import ClusterWitness

        self._witness = witness = ClusterWitness(self._storage.logs.path, lambda: known_epochs(image))

        async def note(broker_epoch: int, *, registers: bool) -> bool:
            return await asyncio.to_thread(witness.note_epoch, broker_epoch, registers=registers)

        return note

    def _keep_witness(self, follower: ImageFollower, witness: "ClusterWitness") -> None:
        """Notes from now on the state of the cluster's metadata that this broker has seen."""
        image = follower.image
        assert self._metadata_writer is not None
        epoch, unclean = self._metadata_writer.broker_epoch, self._storage.standing.unclean
        witness.begin(image.cluster_id, image.revision, follower.newest, unclean=unclean, broker_epoch=epoch)

        def changed(delta: ImageDelta) -> None:
            if delta.brokers_changed and self._metadata_writer is not None and self._metadata_writer.takes_part:
                witness.loss_noted()
            epochs_changed = bool(delta.created or delta.deleted or delta.changed or delta.registered)
            witness.saw(delta.revision, follower.newest, epochs_changed=epochs_changed)
            self.driver.apply(delta)

        follower.on_change = changed

    def _security_between_brokers(self) -> Security:
        """How this broker speaks with others."""
        log_in = None
        if (user := self.settings.brokers_log_in) is not None:
            # Imported only if brokers log in at each other, to keep the start quick.
            from cordwood.broker.network.brokers_log_in import ScramLogIn

            log_in = ScramLogIn(user)
        name = self.settings.brokers_listener.name
        if self._tls is None or name not in self._tls:
            return Security(log_in=log_in)
        listener = self._tls[name]
        return Security(lambda: listener.dialling_context, log_in)

    def _bound_connections(self, delta: ImageDelta) -> None:
        """Takes over bounds that were altered. Connections that are open stay: the bounds hold for new ones."""
        if delta.broker_settings_changed and self._connections is not None:
            settings = self.node.image.settings
            self._connections.limits = self._connections.limits._replace(
                max_connections=self._max_connections(settings),
                max_connections_per_address=settings.max_connections_per_ip,
                max_creation_rate=settings.max_connection_creation_rate,
            )

    def _max_connections(self, settings: BrokerSettings) -> int:
        wanted = settings.max_connections
        possible = descriptors.connections(wanted, self._storage.max_open_files)
        shortage = ""
        # Logged if few connections fit, or if the setting asks for more. Otherwise the log line of a refusal suffices.
        if possible < wanted and (possible < FEW_CONNECTIONS or "max.connections" in settings.texts):
            files = self._storage.max_open_files
            shortage = descriptors.shortage(wanted, settings.open_files_max, possible, files)
        # One change of a setting may arrive as several changes of the metadata.
        if shortage and shortage != self._shortage_said:
            logger.warning("%s", shortage)
        self._shortage_said = shortage
        return possible

    async def _recover(self) -> None:
        started_s = self._loop.time()
        recovered = 0
        for _ in self.node.recover_all():
            recovered += 1
            await asyncio.sleep(0)
        if recovered:
            logger.info(
                "checked %d %s after an unclean stop, in %.0f ms",
                recovered,
                "partition" if recovered == 1 else "partitions",
                (self._loop.time() - started_s) * 1000,
            )

    def _make_flusher(self) -> CountingFlusher:
        if self._storage.in_memory:
            return ImmediateFlusher(self.driver.flushed, self._fail)
        return Flusher(
            self._loop,
            self.driver.flushed,
            self._fail,
            sync_everything=self._storage.sync_everything,
            threads=self.settings.flush_threads,
            survived=self.driver.sync_failed,
        )

    def answer_through(self, front: RequestHandler | None) -> None:
        """Sends requests to `front` instead of the node; None: to the node again. Called in the loop."""
        assert self._connections is not None
        self._connections.node = self.node if front is None else front

    def later(self, delay_s: float, event: Callable[[], None]) -> None:
        """Runs an event on the node after a delay, unless the broker has stopped by then."""
        self._loop.call_later(delay_s, self.driver.run, event)

    # Failures

    def _request_failed(self, failure: Exception) -> None:
        """Handles an exception of a request: the connection is closed; a broken invariant stops the broker."""
        if isinstance(failure, AssertionError | SyncFailure) and not self.driver.survived(failure):
            self._fail(failure)
        else:
            logger.error("a request failed: %s", failure, exc_info=failure)

    def _metadata_lost(self, followed: "asyncio.Future[None]") -> None:
        if not followed.cancelled() and (failure := followed.exception()) is not None:
            assert isinstance(failure, Exception)
            self._fail(failure)

    def _registration_ended(self, renewing: "asyncio.Task[None]") -> None:
        """Stops a broker whose node id another process has taken, or whose store went back."""
        if not renewing.cancelled() and (failure := renewing.exception()) is not None:
            assert isinstance(failure, Exception)
            self._fail(failure)

    def _fail(self, failure: Exception) -> None:
        if self.failed.done():
            return
        # The state of the store is no fault of the program: its words say everything.
        trace = None if isinstance(failure, StoreFailure) else failure
        logger.critical("the broker cannot go on: %s", failure, exc_info=trace)
        self.driver.stop()
        self._stop_listening()
        if self._connections is not None:
            self._connections.close()
        self.failed.set_result(failure)

    # The end

    def _stop_listening(self) -> None:
        if self._listening:
            for _, bound in self._bound:
                stop_listening(bound)
        for listening in self._listening:
            listening.close()

    async def stop(self) -> None:
        """Hands leaderships over, answers requests, flushes, checkpoints and closes. After a failure only closes: the
        next start recovers. After one of the store the high watermarks are saved, too."""
        self._stopping = True
        if self._metadata_writer is not None and not self.failed.done():
            await self._metadata_writer.drain(HAND_OVER_S)
            await self._hear_last_news()
        self._stop_listening()
        try:
            if not self.failed.done():
                await self._finish()
        finally:
            await self._release()

    async def abandon(self) -> None:
        """Ends as a killed process does: answers nothing, hands nothing over, checkpoints nothing."""
        self._stopping = True
        self._stop_listening()
        await self._release()

    async def _hear_last_news(self) -> None:
        """Waits a while until this broker's followers know which of their records are committed."""
        heard = asyncio.Event()
        self.driver.run(lambda: self.node.last_news.ask(heard.set))
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_NEWS_MS / 1000):
                await heard.wait()

    async def _finish(self) -> None:
        assert self._connections is not None
        started_s = self._loop.time()
        self.driver.run(lambda: self.node.stop_waiting(self.node.now))
        owed = await self._connections.drain(DRAIN_S)
        await self.driver.settle(DRAIN_S)
        await self.driver.flush_everything()
        self.driver.run(self.node.lost_directories.look)
        if self.failed.done():
            return
        self._connections.close_gently()
        self.driver.stop()
        assert self._flusher is not None
        self._flusher.close()
        # No client waits for an answer any more, so work in other processes is ended.
        self._apart.close()
        self._fair_workers.close()
        self._file_workers.close()
        self._scrub_thread.close()
        self.node.damage.finish()
        how = "cleanly"
        try:
            self._storage.close_logs()
        except DiskFull as failure:
            # Everything acknowledged is on the disk. Only files that would make the next start quick find no space.
            logger.warning("the disk is full: the next start checks the logs, which takes longer: %s", failure)
            how = "on a full disk"
        self._stopped_cleanly = how == "cleanly"
        logger.info(
            "stopped %s in %.0f ms%s",
            how,
            (self._loop.time() - started_s) * 1000,
            f"; {owed} connections were still waiting for answers" if owed else "",
        )

    async def _release(self) -> None:
        """Releases all resources, also after a start or stop that failed halfway."""
        self.driver.stop()
        if self._peers is not None:
            self._peers.close()
        self._loop_watch.close()
        if self._metrics is not None:
            self._metrics.close()
        if self._connections is not None:
            self._connections.close()
        if self._tls is not None:
            self._tls.close()
        if self._key_reader is not None:
            self._key_reader.close()
        for _, bound in self._bound:
            bound.close()
        if self._flusher is not None:
            self._flusher.close()
        self._apart.close()
        self._fair_workers.close()
        self._file_workers.close()
        self._scrub_thread.close()
        self._cold_readers.close()
        if self.failed.done() and isinstance(self.failed.result(), StoreFailure):
            self._storage.save_high_watermarks()
        if self._metadata_writer is not None:
            await self._metadata_writer.stop(cleanly=self._stopped_cleanly)
        if self._witness is not None:
            await self._witness.close()
        if self._trail is not None:
            self._trail.close()
        await self._storage.release()


def _tls_listeners(settings: BrokerSettings) -> "TlsListeners | None":
    """The listeners with TLS; None if there are none. Raises BadCertificates."""
    if not (wanted := settings.tls_listeners):
        return None
    # Imported only if TLS is spoken, to keep the start quick.
    from cordwood.broker.network.tls.listeners import TlsListeners

    return TlsListeners(wanted, settings.brokers_listener.name if settings.cluster_store else "")


def _check_key_files(settings: BrokerSettings) -> None:
    """Raises BadKeys for files of keys, or of authorities, that cannot be used."""
    if sources := settings.key_sources:
        # Imported only if tokens are taken, to keep the start quick.
        from cordwood.broker.network.token_keys import check_key_files

        check_key_files(sources)


def _token_secrets(settings: BrokerSettings) -> "TokenSecrets | None":
    """The secrets of delegation tokens; None if there are none. Raises BadKeys."""
    if not settings.delegation_token_secret_key_file:
        return None
    # Imported only if there are such tokens, to keep the start quick.
    from cordwood.broker.storage.token_key_file import read_token_key
    from cordwood.security.token_secrets import TokenSecrets

    return TokenSecrets(read_token_key(settings.delegation_token_secret_key_file))

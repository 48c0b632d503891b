"""One life of a broker: a process with the real driver, node, metadata writer and logs, from its start to its end."""

import asyncio
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from cordwood.broker.driver import Driver
from cordwood.broker.machine.fair_workers import FairWorkers
from cordwood.broker.machine.log_levels import PythonLogLevels
from cordwood.broker.network.outbox import Outbox
from cordwood.broker.storage.cluster_witness import Seen, check_cluster
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage, ImageDelta
from cordwood.cluster.metadata.known_epochs import known_epochs
from cordwood.cluster.metadata.rows import Endpoint, broker_key, decode_broker
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.registration import Standing
from cordwood.cluster.stores.interface import StoreFailure
from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.directory_set import Place, look_at
from cordwood.log.directory.identity import Identity
from cordwood.log.parts.loaded_indexes import LoadedIndexes
from cordwood.log.rewriting.compaction import CompactionJob, CompactionResult, compact
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.node.apis import served_versions
from cordwood.node.loop.serving import Serving
from cordwood.node.node import Node
from cordwood.node.partitions.known_topics import known_topics
from cordwood.security.token_secrets import TokenSecrets
from simulation.world.broken import InvariantBroken
from simulation.world.clock import Clock
from simulation.world.disk import SimulatedDisk
from simulation.world.peers import NetworkOf, SimulatedPeers
from simulation.world.slow_store import SlowStore
from simulation.world.threads import Patience, SimulatedFlusher, SimulatedWorkers, Step
from simulation.world.turn_loop import TurnLoop

if TYPE_CHECKING:
    from cordwood.broker.machine.threads import Workers
    from cordwood.security.trail.port import Trail

DATA_DIRECTORY = "/data"
RETRY_S = 0.1
WITNESS_MS = 1_000
"""The pause between two versions of the witness."""
MANY_THREADS = 1_000_000
"""The number of threads exceeds the work: only the seed picks the next piece of work."""
TOKEN_SECRETS = TokenSecrets(b"the key of delegation tokens, the same in all simulations")


@dataclass(frozen=True)
class Setup:
    """The common setup of all lives of one broker."""

    settings: BrokerSettings
    loaded_indexes_bytes: int
    patience: Patience | None
    scrubbed: bool
    lease_ms: int
    clustered: bool = False
    """True if other brokers share the store."""
    directories: int = 1
    """The number of the broker's data directories, all on one disk."""
    trail: "Trail | None" = None
    token_secrets: TokenSecrets = TOKEN_SECRETS

    @property
    def data_directories(self) -> tuple[str, ...]:
        return DATA_DIRECTORY, *(f"{DATA_DIRECTORY}-{number}" for number in range(2, self.directories + 1))

    @property
    def broker_id(self) -> int:
        return self.settings.node_id


class Life:
    """One process on a machine's disk and clock."""

    def __init__(
        self,
        setup: Setup,
        number: int,
        disk: SimulatedDisk,
        clock: Clock,
        store: SlowStore,
        chance: random.Random,
        network_of: NetworkOf,
        reaches: Callable[[int], bool],
    ) -> None:
        """`reaches` returns True if packets get to another broker's machine and back."""
        self.number = number
        self.failure: Exception | None = None
        self.loop = TurnLoop(clock)
        self.store = store
        self.workers = SimulatedWorkers(disk, setup.patience)
        indexes = LoadedIndexes(limit_bytes=setup.loaded_indexes_bytes)
        self.logs = DataDirectories(
            [DataDirectory(disk, path, loaded_indexes=indexes) for path in setup.data_directories]
        )
        self.driver = Driver(
            self.loop.for_asyncio,
            Outbox(self.loop.for_asyncio),
            cast("Workers", self.workers),
            FairWorkers(self.workers, MANY_THREADS, MANY_THREADS),
            self._failed,
            now=clock.now,
        )
        self.flusher = SimulatedFlusher(
            disk,
            setup.patience,
            self.driver.flushed,
            self._failed,
            self.driver.sync_failed,
            together=setup.directories == 1,
        )
        self.serving = Serving(setup.lease_ms) if setup.clustered else Serving()
        self.metadata_writer: MetadataWriter
        self.node: Node
        self._setup = setup
        self._disk = disk
        self._clock = clock
        self._chance = chance
        self._other_brokers = SimulatedPeers(
            setup.broker_id,
            network_of,
            served_versions,
            self._later,
            clock.now,
            lambda: self.metadata_writer.follower.changed_revision,
            lambda: self.serving.key,
            reaches,
        )
        self._witnessed_ms = -WITNESS_MS
        self._may_be_newer = False
        """True if the logs may be newer than the metadata: no witness shows the state that the broker had seen."""
        self._known_epochs: dict[tuple[str, int], int] = {}
        self._without_logs: list[tuple[str, int]] = []

    def start(self) -> None:
        """Starts the broker, up to the first request. Raises StoreFailure, StorageFailure."""
        owner = self.logs.home.identity()
        found = look_at([Place(self._disk, path) for path in self._setup.data_directories])
        self.logs.all_present = found.complete
        storage_id = (owner and found.complete and owner.storage_id) or f"{self._chance.getrandbits(64):x}"
        starting = self.loop.create_task(self._start_metadata(storage_id))
        while not starting.done():
            self.loop.run_until_idle()
            if self.store.calls:
                self.store.end_next_call()
        starting.result()
        self.logs.open(
            Identity(self.metadata_writer.image.cluster_id, self._setup.broker_id, storage_id),
            new_id=lambda: f"{self._chance.getrandbits(64):x}",
            known=known_topics(self.metadata_writer.image),
        )
        self.node = Node(
            self.metadata_writer.image,
            self.logs,
            self.driver,
            self.driver.now(),
            serving=self.serving,
            compact=self._compact,
            log_levels=PythonLogLevels(),
            other_brokers=self._other_brokers,
            seed=self._chance.getrandbits(64),
            random_bytes=self._chance.randbytes,
            trail=self._setup.trail,
            token_secrets=self._setup.token_secrets,
        )
        for _ in self.node.recover_all():
            pass
        if self._may_be_newer:
            self._without_logs = self.node.without_logs()
            self._known_epochs = self.node.epochs_in_logs()
        self.driver.drive(self.node, self.flusher, self.metadata_writer)
        if self._setup.clustered:
            self.serving.on_registered = lambda: self.driver.run(lambda: self.node.registered(self.node.now))
            self.loop.create_task(self._take_part())
        if self._setup.scrubbed:
            self.node.scrub.begin(self._scrub, self.node.now)
            self.node.repair.begin(self._scrub)

    def _later(self, delay_ms: int, event: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_later(delay_ms / 1000, lambda: self.driver.run(event))

    def _scrub(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def finished(result: Any) -> None:
            self.driver.run(lambda: done(result))

        self.workers.submit(work, finished)

    async def _start_metadata(self, storage_id: str) -> None:
        setup, clock, chance = self._setup, self._clock, self._chance
        image = ClusterImage(setup.broker_id, setup.settings)
        standing = Standing(storage_id, self._disk.loss_not_noted, setup.clustered)
        if setup.clustered:
            owner = self.logs.home.identity()
            known = None if owner is None else owner.cluster_id
            self._may_be_newer = owner is not None and self._disk.platter_witness is None
            await check_cluster(
                self.store, DATA_DIRECTORY, known, self._disk.platter_witness, self._disk.platter_epochs
            )
            await self._outlive_another_disk(storage_id)
        self.metadata_writer = MetadataWriter(
            self.store,
            ImageFollower(self.store, image, on_change=self.driver.apply, boot_ms=lambda: clock.boot_ms),
            new_id=lambda: uuid.UUID(int=chance.getrandbits(128), version=4),
            lease_ms=setup.lease_ms,
            standing=standing,
            holder=self.serving,
            boot_ms=lambda: clock.boot_ms,
            token_key=setup.token_secrets.fingerprint,
        )
        self.metadata_writer.follower.stopped.add_done_callback(self._metadata_lost)
        self._other_brokers.epoch_of = image.registered_epoch
        self.metadata_writer.follower.watchers.append(self._look_at_brokers)
        await self.metadata_writer.start([Endpoint("PLAINTEXT", "simulated", 9092)])
        self._keep_witness()
        if self.metadata_writer.evidence is not None:
            self._other_brokers.observe(self.metadata_writer.evidence)

    async def _outlive_another_disk(self, storage_id: str) -> None:
        """Ends the registration of a life on another disk: to replace a disk takes longer than a lease."""
        key = broker_key(self._setup.broker_id)
        item = await self.store.get(key)
        if item is not None and decode_broker(key, item.value).storage_id != storage_id:
            await self.store.revoke(item.lease)

    async def _take_part(self) -> None:
        """Asks for the lifting of the fence, until the store hears it."""
        while True:
            try:
                if self._may_be_newer:
                    await self.metadata_writer.partitions.raise_epochs(self._known_epochs)
                    self._may_be_newer = False
                    self._keep_witness()
                await self.metadata_writer.ready([*self.node.doubtful_logs.names, *self._without_logs])
                return
            except StoreFailure:
                await asyncio.sleep(RETRY_S)

    def _keep_witness(self) -> None:
        """Writes down the seen state of the metadata now and then, as the server does."""
        if self._clock.boot_ms - self._witnessed_ms >= WITNESS_MS and not self._may_be_newer:
            self._witnessed_ms = self._clock.boot_ms
            image = self.metadata_writer.image
            newest = self.metadata_writer.follower.newest
            self._disk.platter_witness = Seen(image.cluster_id, image.revision, "", newest)
            self._disk.platter_epochs = known_epochs(image)

    def _look_at_brokers(self, delta: ImageDelta) -> None:
        self._keep_witness()
        if delta.brokers_changed:
            self._other_brokers.brokers_changed()
        if self.metadata_writer.takes_part:
            self._disk.loss_not_noted = False

    def _metadata_lost(self, stopped: "asyncio.Future[None]") -> None:
        """Ends a broker that no longer follows the metadata store, as the server does."""
        failure = stopped.exception()
        if isinstance(failure, Exception):
            self._failed(failure)

    def _compact(self, job: CompactionJob) -> CompactionResult:
        return compact(self._disk, job)

    def _failed(self, failure: Exception) -> None:
        if self.failure is None:
            self.failure = failure
            self.driver.stop()

    def kill(self) -> None:
        """Ends the process: none of its steps happens any more."""
        self._disk.died = True
        self.driver.stop()
        self.workers.kill()
        self.flusher.kill()
        self._other_brokers.close()
        self.loop.forget()

    def steps(self, *, syncs: bool = True, store_answers: bool = True) -> list[Step]:
        """The steps that could happen now; without `syncs` the disk is too slow to sync."""
        steps = self.workers.steps()
        if syncs:
            steps += self.flusher.steps()
        if store_answers and self.store.calls:
            steps.append(("the store answers", self.store.end_next_call))
        if store_answers and self.store.news:
            steps.append(("the watch tells", self.store.tell_news))
        if self.loop.has_ready:
            # Offered three times: a step of the loop is small, and all other work waits for it.
            steps += [("turn", self.loop.step)] * 3
        return steps

    def finish(self, do: Callable[[Callable[[], None]], None]) -> None:
        """Stops cleanly: all logs are flushed and checkpointed, and the directory is marked as cleanly closed.

        `do` takes one step of this life.
        """
        self.driver.run(lambda: self.node.stop_waiting(self.node.now))
        # A stopping broker waits a while for its calls to the store.
        self.loop.run_until_idle()
        while self.store.calls:
            do(self.store.end_next_call)
            self.loop.run_until_idle()
        finishing = self.loop.create_task(self.driver.flush_everything())
        while not finishing.done():
            steps = self.steps()
            if not steps:
                raise InvariantBroken("a broker that stops waits for something that does not come")
            do(steps[0][1])
        self.driver.stop()
        self.flusher.close()
        self.workers.close()
        self.logs.close()

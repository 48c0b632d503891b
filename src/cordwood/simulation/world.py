"""The made-up machine with a broker, whose life can end at any moment and begin again on the surviving data.

A `World` offers the steps that could happen next, in the network, in the threads, in the event loop, at the store. Its
driver picks a step. Tests of single behaviours use `settle`, which takes the first step until none is left; in a game
the seed picks.
"""

import random
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from cordwood.broker.driver import Driver
from cordwood.broker.fair_workers import FairWorkers
from cordwood.broker.log_levels import PythonLogLevels
from cordwood.broker.outbox import Outbox
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.image import ClusterImage
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.rows import Endpoint
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.log.compaction import CompactionJob, CompactionResult, compact
from cordwood.log.data_directory import DataDirectory
from cordwood.log.identity import Identity
from cordwood.log.loaded_indexes import LoadedIndexes
from cordwood.model.broker_settings import BrokerSettings
from cordwood.model.errors import EnvironmentFailure, SyncFailure
from cordwood.node.node import Node
from cordwood.simulation.broken import InvariantBroken
from cordwood.simulation.clock import Clock
from cordwood.simulation.disk import ProcessDied, SimulatedDisk
from cordwood.simulation.exchange import Connection, Exchange, Network
from cordwood.simulation.slow_store import SlowStore
from cordwood.simulation.threads import Patience, SimulatedFlusher, SimulatedWorkers, Step
from cordwood.simulation.turn_loop import TurnLoop
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.broker.threads import Workers

DATA_DIRECTORY = "/data"
STEPS_TO_SETTLE = 100_000
MANY_THREADS = 1_000_000
"""More threads than work: only the seed picks the work that comes next."""
LEASE_MS = 600_000
"""Longer than a game: renewals would add steps, and no game of one node depends on them."""

SETTINGS: Mapping[str, str] = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "2000",
    "transaction.state.log.num.partitions": "2",
    "max.incremental.fetch.session.cache.slots": "4",
}
"""Small limits, so that events that are rare on a real machine happen often."""


class BrokerFailed(Exception):
    """The broker gives up after a failed sync. Its process ends."""


class Life:
    """One process: from its start to its end."""

    def __init__(self, world: "World", number: int) -> None:
        self.number = number
        self.failure: Exception | None = None
        self.loop = TurnLoop(world.clock)
        self.store = SlowStore(world.store)
        self.workers = SimulatedWorkers(world.disk, world.patience)
        self.logs = DataDirectory(
            world.disk,
            DATA_DIRECTORY,
            producer_expiration_ms=world.settings.producer_id_expiration_ms,
            loaded_indexes=LoadedIndexes(limit_bytes=world.loaded_indexes_bytes),
        )
        self.driver = Driver(
            self.loop.for_asyncio,
            Outbox(self.loop.for_asyncio),
            cast("Workers", self.workers),
            FairWorkers(self.workers, MANY_THREADS, MANY_THREADS),
            self._failed,
            now=world.clock.now,
        )
        self.flusher = SimulatedFlusher(world.disk, world.patience, self.driver.flushed, self._failed)
        self.metadata_writer: MetadataWriter
        self.node: Node
        self._world = world

    def start(self) -> None:
        """Starts the broker, up to the first request."""
        world = self._world
        starting = self.loop.create_task(self._start_metadata())
        while not starting.done():
            self.loop.run_until_idle()
            if self.store.calls:
                self.store.end_next_call()
        starting.result()
        self.logs.open(Identity(self.metadata_writer.image.cluster_id, world.settings.node_id))
        self.node = Node(
            self.metadata_writer.image,
            self.logs,
            self.driver,
            self.driver.now(),
            broker_epoch=self.metadata_writer.broker_epoch,
            compact=self._compact,
            log_levels=PythonLogLevels(),
            seed=world.chance.getrandbits(64),
        )
        for _ in self.node.recover_all():
            pass
        self.driver.drive(self.node, self.flusher, self.metadata_writer)
        if world.scrubbed:
            self.node.scrub.begin(self._scrub, self.node.now)

    def _scrub(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def finished(result: Any) -> None:
            self.driver.run(lambda: done(result))

        self.workers.submit(work, finished)

    async def _start_metadata(self) -> None:
        world = self._world
        image = ClusterImage(world.settings.node_id, world.settings)
        self.metadata_writer = MetadataWriter(
            self.store,
            ImageFollower(self.store, image, on_change=self._image_changed, boot_ms=lambda: world.clock.boot_ms),
            new_id=lambda: uuid.UUID(int=world.chance.getrandbits(128), version=4),
            lease_ms=LEASE_MS,
        )
        await self.metadata_writer.start([Endpoint("PLAINTEXT", "simulated", 9092)])

    def _image_changed(self, delta: Any) -> None:
        if self._world.on_image_change is not None:
            self._world.on_image_change(delta)
        self.driver.apply(delta)

    def _compact(self, job: CompactionJob) -> CompactionResult:
        return compact(self._world.disk, job)

    def _failed(self, failure: Exception) -> None:
        if self.failure is None:
            self.failure = failure
            self.driver.stop()

    def kill(self) -> None:
        """Ends the process: none of its steps happens any more."""
        self._world.disk.died = True
        self.driver.stop()
        self.workers.kill()
        self.flusher.kill()
        self.loop.forget()

    def steps(self) -> list[Step]:
        steps = self.workers.steps() + self.flusher.steps()
        if self.store.calls:
            steps.append(("the store answers", self.store.end_next_call))
        if self.loop.has_ready:
            # Offered three times: a step of the loop is small, and all other work waits for it.
            steps += [("turn", self.loop.step)] * 3
        return steps

    def finish(self) -> None:
        """A clean stop: all logs are flushed and checkpointed, and the directory is marked as cleanly closed."""
        self.driver.run(lambda: self.node.stop_waiting(self.node.now))
        # A stopping broker waits a while for its calls to the store.
        self.loop.run_until_idle()
        while self.store.calls:
            self._world.do(self.store.end_next_call)
            self.loop.run_until_idle()
        finishing = self.loop.create_task(self.driver.flush_everything())
        while not finishing.done():
            steps = self.steps()
            if not steps:
                raise InvariantBroken("a broker that stops waits for something that does not come")
            self._world.do(steps[0][1])
        self.driver.stop()
        self.flusher.close()
        self.workers.close()
        self.logs.close()


class World:
    def __init__(
        self,
        seed: int = 0,
        settings: Mapping[str, str] | None = None,
        *,
        loaded_indexes_bytes: int = 1 << 20,
        patience: Patience | None = None,
        scrubbed: bool = False,
    ) -> None:
        """`scrubbed`: closed segments are read in the background, which changes the meaning of seeds."""
        self.patience = patience
        self.scrubbed = scrubbed
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.disk = SimulatedDisk(seed)
        self.store = MemoryStore(boot_ms=lambda: self.clock.boot_ms)
        self.network = Network(lambda: self.clock.boot_ms)
        self.settings = BrokerSettings.from_texts({**SETTINGS, **(settings or {})})
        self.loaded_indexes_bytes = loaded_indexes_bytes
        self.life: Life | None = None
        self.lives = 0
        self.on_image_change: Callable[[Any], None] | None = None
        self.on_step: Callable[[], None] | None = None

    # Life and death

    @property
    def node(self) -> Node:
        assert self.life is not None, "the broker is not running"
        return self.life.node

    def start(self) -> "World":
        """Starts a new process on the data of disk and store. Raises ProcessDied if it dies in its start."""
        assert self.life is None
        self.disk.begin_life()
        self.lives += 1
        life = Life(self, self.lives)
        self.life = life
        life.start()
        self._check_alive()
        self.network.attach(life.node)
        return self

    def stop(self) -> None:
        """A clean stop. Clients that still wait find their connections closed."""
        assert self.life is not None
        life = self.life
        life.finish()
        self._check_alive()
        self._forget_life()

    def kill(self) -> None:
        """kill -9: all writes stay, synced or not."""
        self._forget_life()

    def lose_power(self) -> None:
        """A power cut: unsynced writes are gone, torn or kept, as the disk picks."""
        self._forget_life()
        self.disk.lose_power()

    def _forget_life(self) -> None:
        life, self.life = self.life, None
        if life is not None:
            life.store.abandon(reaches_store=self.chance.random() < 0.5)
            life.kill()
        # The handles of this process are dead from now on.
        self.disk.begin_life()
        self.network.lose_everything()

    # Steps

    def steps(self) -> list[Step]:
        """The steps that could happen now, without time passing and without a client acting."""
        network, life = self.network, self.life
        if life is None:
            return []
        steps = life.steps()
        for exchange in network.answers:
            steps.append(("answer", partial(network.deliver_answer, exchange)))
        for connection in network.connections:
            if connection.travelling and not connection.held:
                steps.append(("request", partial(self._deliver_request, connection)))
            if not connection.open:
                steps.append(("close", partial(network.drop, connection)))
        return steps

    def _deliver_request(self, connection: Connection) -> None:
        assert self.life is not None
        self.network.deliver_request(connection, self.life.driver.now())

    def do(self, step: Callable[[], None]) -> None:
        """Takes one step. Raises ProcessDied if the process dies in it, BrokerFailed if the broker gives up."""
        try:
            step()
        except EnvironmentFailure as failure:
            # A request failed: the broker closes that connection, and goes on unless a sync failed.
            if isinstance(failure, SyncFailure):
                raise BrokerFailed(str(failure)) from failure
            self._request_failed(failure)
        self._check_alive()
        if self.on_step is not None and self.network.attached:
            self.on_step()

    def _request_failed(self, failure: EnvironmentFailure) -> None:
        exchange, self.network.handling = self.network.handling, None
        if exchange is None:
            raise failure
        exchange.connection.hung_up()

    def _check_alive(self) -> None:
        if self.disk.died:
            # The loop's tasks swallow even a BaseException, so the disk is asked.
            raise ProcessDied(self.disk.last_operation)
        failure = None if self.life is None else self.life.failure
        if failure is not None:
            if isinstance(failure, SyncFailure):
                raise BrokerFailed(str(failure)) from failure
            raise failure

    # For tests of single behaviours

    def connect(self) -> Connection:
        return self.network.connect()

    def settle(self) -> None:
        """Takes all steps that can happen now, the oldest first."""
        for _ in range(STEPS_TO_SETTLE):
            steps = self.steps()
            if not steps:
                return
            self.do(steps[0][1])
        raise InvariantBroken("the broker does not come to rest")

    def advance(self, by_ms: int) -> None:
        """Lets time pass, from deadline to deadline, and takes all steps on the way."""
        end_ms = self.clock.boot_ms + by_ms
        self.settle()
        while self.life is not None and (deadline_ms := self.life.loop.next_deadline_ms) is not None:
            if deadline_ms > end_ms:
                break
            self.clock.advance(max(0, deadline_ms - self.clock.boot_ms))
            self.settle()
        self.clock.advance(end_ms - self.clock.boot_ms)
        self.settle()

    def ask(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        """The answer to one request on a connection of its own. AssertionError if the answer needs time to pass."""
        connection = self.connect()
        exchange = connection.request(key, version, values)
        self.settle()
        assert exchange.answered, f"{exchange}: {exchange.state.value} {exchange.hang_up_reason}"
        connection.close()
        self.settle()
        return exchange.answer

    def begin(self, key: ApiKey, version: int, /, **values: Any) -> Exchange:
        """Sends a request and takes all steps that follow. The request may still wait for its answer."""
        exchange = self.connect().request(key, version, values)
        self.settle()
        return exchange

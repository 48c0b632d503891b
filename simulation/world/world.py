"""The made-up world: machines with brokers, the links between them and to their clients, and one metadata store.

A `World` offers the steps that could happen next on its machines. Its driver picks a step. Tests of single behaviours
use `settle`, which takes the first step until none is left; in a game the seed picks. By default a world has one
machine and stands for that machine, whose clock is the clients' clock, too.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from cordwood.cluster.stores.feed import CommitFeed
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.node.node import Node
from cordwood.wire.apis import ApiKey
from simulation.world.broken import InvariantBroken
from simulation.world.clock import Clock
from simulation.world.disk import SimulatedDisk
from simulation.world.exchange import Connection, Exchange, Network
from simulation.world.life import Life, Setup
from simulation.world.links import Links
from simulation.world.machine import Machine
from simulation.world.slow_store import SlowStore
from simulation.world.threads import Patience, Step

if TYPE_CHECKING:
    from cordwood.security.trail.port import Trail
    from cordwood.wire.api_types import KeyOf, Response

STEPS_TO_SETTLE = 100_000
BUMP = 1_000_000_000
"""The distance of a bumped copy of the store from its former revision, as etcd's documentation advises."""
LEASE_MS = 600_000
"""A lease longer than a game: renewals would add steps, and no game of one node depends on them."""
SHORT_LEASE_MS = 3_000
"""The lease of one broker of many: shorter than some pauses and cuts."""

SETTINGS: Mapping[str, str] = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.segment.bytes": "2000",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "max.incremental.fetch.session.cache.slots": "4",
}
"""Small limits, so that events that are rare on a real machine happen often."""


def replicated(replicas: int) -> dict[str, str]:
    """Settings with which internal topics have this many replicas."""
    return {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
    }


def rack_of(broker_id: int) -> str:
    return f"rack-{broker_id}"


class StepOfOne:
    """A step on one of several machines."""

    __slots__ = ("_step", "machine")

    def __init__(self, machine: Machine, step: Callable[[], None]) -> None:
        self.machine = machine
        self._step = step

    def __call__(self) -> None:
        self.machine.do(self._step)


class World:
    def __init__(
        self,
        seed: int = 0,
        settings: Mapping[str, str] | None = None,
        *,
        machines: int = 1,
        loaded_indexes_bytes: int = 1 << 20,
        patience: Patience | None = None,
        scrubbed: bool = False,
        clustered: bool = False,
        racks: bool = False,
        directories: int = 1,
        trail: Trail | None = None,
    ) -> None:
        """`scrubbed`: closed segments are read in the background, which changes the meaning of seeds. `clustered`:
        brokers register fenced, and one of them is the controller. `racks`: each broker is in a separate rack.
        `directories`: the number of data directories of each broker. `trail`: hears of their changes and refusals."""
        self.chance = random.Random(seed)
        self.clock = Clock()
        """The time of clients and of the store."""
        self.store = MemoryStore(boot_ms=lambda: self.clock.boot_ms)
        self.restored: MemoryStore | None = None
        """An older copy that is in the store's place."""
        self.links = Links()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._event_count = 0
        texts = {**SETTINGS, **(settings or {})}
        self.machines: list[Machine] = []
        for number in range(machines):
            of_many = {} if machines == 1 else {"node.id": str(number + 1)}
            if racks:
                of_many["broker.rack"] = rack_of(number + 1)
            setup = Setup(
                BrokerSettings.from_texts({**texts, **of_many}),
                loaded_indexes_bytes,
                patience,
                scrubbed,
                LEASE_MS if machines == 1 else SHORT_LEASE_MS,
                clustered,
                directories,
                trail,
            )
            self.machines.append(
                Machine(
                    setup,
                    SimulatedDisk(seed + number * 7919, setup.broker_id),
                    self.clock if machines == 1 else self.clock.follower(),
                    self.links,
                    partial(self._connect_to_store, setup.broker_id),
                    self.chance,
                    self.network_of,
                )
            )

    def _connect_to_store(self, broker_id: int) -> SlowStore:
        return SlowStore(self.restored or self.store, broker_id, self.links, tells_late=len(self.machines) > 1)

    # Copies of the store

    def copy_of_store(self) -> MemoryStore:
        """A backup of the store, with the revision at which it was taken."""
        copy = MemoryStore(boot_ms=lambda: self.clock.boot_ms)
        copy._items = dict(self.store._items)
        copy._feed = CommitFeed(self.store._feed.revision, 2**31)
        return copy

    def bumped(self, copy: MemoryStore) -> MemoryStore:
        """A copy as `etcdutl snapshot restore --bump-revision --mark-compacted` restores it: at a higher revision than
        the store ever had, and without history."""
        bumped = copy.reopened()
        bumped._feed = CommitFeed(bumped._feed.revision + BUMP, 2**31)
        bumped._forget(bumped._feed.revision)
        return bumped

    def restore(self, copy: MemoryStore) -> None:
        """Puts an older copy in the place of the store. Running brokers notice another store, as they do by the id of
        an etcd, and get no answer that counts. Brokers that start find the older copy."""
        self.restored = copy
        self._another_store(True)

    def put_back(self) -> None:
        """Ends a `restore`: the operator has found the newest copy."""
        self.restored = None
        self._another_store(False)

    def _another_store(self, another: bool) -> None:
        for machine in self.machines:
            if machine.life is not None:
                machine.life.store.another = another

    def machine_of(self, broker_id: int) -> Machine:
        return self.machines[broker_id - self.machines[0].broker_id]

    def network_of(self, broker_id: int) -> Network | None:
        """The network of a broker; None if there is no such broker."""
        return next((machine.network for machine in self.machines if machine.broker_id == broker_id), None)

    @property
    def running(self) -> list[Machine]:
        """The machines whose brokers have started and not died."""
        return [machine for machine in self.machines if machine.network.attached]

    # Life and death of all brokers

    def start(self) -> World:
        """Starts the brokers that do not run. Raises ProcessDied if one dies in its start."""
        for machine in self.machines:
            if machine.life is None:
                machine.start()
        return self

    def stop(self) -> None:
        """Stops cleanly. Clients that still wait find their connections closed."""
        for machine in self.machines:
            machine.stop()

    def kill(self) -> None:
        """Kills the brokers with kill -9: all writes stay, synced or not."""
        for machine in self.machines:
            machine.kill()

    def lose_power(self) -> None:
        """Cuts the power: unsynced writes are gone, torn or kept, as the disks pick."""
        for machine in self.machines:
            machine.lose_power()

    # A world of one machine

    @property
    def machine(self) -> Machine:
        assert len(self.machines) == 1, "there are several machines"
        return self.machines[0]

    @property
    def disk(self) -> SimulatedDisk:
        return self.machine.disk

    @property
    def network(self) -> Network:
        return self.machine.network

    @property
    def life(self) -> Life | None:
        return self.machine.life

    @property
    def lives(self) -> int:
        return sum(machine.lives for machine in self.machines)

    @property
    def node(self) -> Node:
        return self.machine.node

    @property
    def settings(self) -> BrokerSettings:
        return self.machines[0].setup.settings

    # Steps

    def later(self, delay_ms: int, event: Callable[[], None]) -> None:
        """Lets an event of the world happen after this time: the end of a pause or of a cut."""
        self._event_count += 1
        heapq.heappush(self._events, (self.clock.boot_ms + delay_ms, self._event_count, event))

    def happen(self) -> None:
        """Lets the due events of the world happen."""
        while self._events and self._events[0][0] <= self.clock.boot_ms:
            heapq.heappop(self._events)[2]()

    def whose(self, step: Callable[[], None]) -> Machine:
        """The machine on which one of `steps` happens."""
        return step.machine if isinstance(step, StepOfOne) else self.machine

    def steps(self) -> list[Step]:
        """The steps that could happen now, without time passing and without a client acting."""
        if len(self.machines) == 1 and not self._events:
            return self.machines[0].steps()
        self.happen()
        return [
            (machine.says + name, StepOfOne(machine, step))
            for machine in self.machines
            for name, step in machine.steps()
        ]

    def _first_step(self) -> Callable[[], None] | None:
        """The first of `steps`."""
        self.happen()
        for machine in self.machines:
            if steps := machine.steps():
                return partial(machine.do, steps[0][1])
        return None

    def do(self, step: Callable[[], None]) -> None:
        """Takes one step. Raises ProcessDied if a process dies in it, BrokerFailed if a broker gives up."""
        if isinstance(step, StepOfOne):
            step()
        else:
            self.machine.do(step)

    def settle(self) -> None:
        """Takes all steps that can happen now, the oldest first."""
        for _ in range(STEPS_TO_SETTLE):
            step = self._first_step()
            if step is None:
                return
            step()
        raise InvariantBroken("the brokers do not come to rest")

    def advance(self, by_ms: int) -> None:
        """Lets time pass, from deadline to deadline, and takes all steps on the way."""
        end_ms = self.clock.boot_ms + by_ms
        self.settle()
        while (delay_ms := self._next_deadline_in_ms()) is not None and self.clock.boot_ms + delay_ms <= end_ms:
            self.clock.advance(delay_ms)
            self.settle()
        self.clock.advance(end_ms - self.clock.boot_ms)
        self.settle()

    def _next_deadline_in_ms(self) -> int | None:
        delays = [delay for machine in self.machines if (delay := machine.next_deadline_in_ms) is not None]
        if self._events:
            delays.append(max(0, self._events[0][0] - self.clock.boot_ms))
        return min(delays, default=None)

    # For tests of single behaviours

    def connect(self, broker_id: int | None = None) -> Connection:
        """A connection of a client to the broker."""
        machine = self.machine if broker_id is None else self.machine_of(broker_id)
        return machine.network.connect()

    def ask(self, key: KeyOf[Response], version: int, /, **values: Any) -> Response:
        """The answer to one request on a new connection. AssertionError if the answer needs time to pass."""
        return self.ask_at(self.machine.broker_id, key, version, **values)

    def ask_at(self, broker_id: int, key: KeyOf[Response], version: int, /, **values: Any) -> Response:
        """Works like `ask`, at one of several brokers."""
        connection = self.connect(broker_id)
        exchange = connection.request(key, version, values)
        self.settle()
        assert exchange.answered, f"{exchange}: {exchange.state.value} {exchange.hang_up_reason}"
        connection.close()
        self.settle()
        return exchange.answer  # type: ignore[no-any-return]

    def begin(self, key: ApiKey, version: int, /, **values: Any) -> Exchange:
        """Sends a request and takes all steps that follow. The request may still wait for its answer."""
        return self.begin_at(self.machine.broker_id, key, version, **values)

    def begin_at(self, broker_id: int, key: ApiKey, version: int, /, **values: Any) -> Exchange:
        """Works like `begin`, at one of several brokers."""
        exchange = self.connect(broker_id).request(key, version, values)
        self.settle()
        return exchange

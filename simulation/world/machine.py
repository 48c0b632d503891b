"""A made-up machine: its disk, its clock, its end of the network, and the life of the broker on it.

The life can end at any moment and begin again on the surviving data. A paused machine takes no step: requests and news
of the store wait for it. Its clock goes on (a stopped process) or stands still (a frozen virtual machine).
"""

import random
from collections.abc import Callable
from functools import partial

from cordwood.log.directory.data_directory import CLEAN_SHUTDOWN_FILE
from cordwood.model.errors import EnvironmentFailure, SyncFailure
from cordwood.node.node import Node
from simulation.world.clock import Clock
from simulation.world.disk import ProcessDied, SimulatedDisk
from simulation.world.exchange import Connection, Network
from simulation.world.life import Life, Setup
from simulation.world.links import STORE, Links
from simulation.world.peers import NetworkOf
from simulation.world.slow_store import SlowStore
from simulation.world.threads import Step


class BrokerFailed(Exception):
    """The broker gives up after a failed sync. Its process ends."""

    def __init__(self, broker_id: int, failure: Exception) -> None:
        super().__init__(str(failure))
        self.broker_id = broker_id


class Machine:
    def __init__(
        self,
        setup: Setup,
        disk: SimulatedDisk,
        clock: Clock,
        links: Links,
        new_store: Callable[[], SlowStore],
        chance: random.Random,
        network_of: NetworkOf,
    ) -> None:
        """`new_store` connects a new life to the metadata store, `network_of` to other brokers."""
        self.setup = setup
        self.broker_id = setup.broker_id
        self.says = f"{self}: "
        """The beginning of the names of this machine's steps."""
        self.disk = disk
        self.clock = clock
        self.network = Network(lambda: clock.boot_ms)
        self.life: Life | None = None
        self.lives = 0
        self.paused = False
        self.slow_until_ms = 0
        """The disk syncs nothing until this time on the machine's boot clock."""
        self.on_step: Callable[[], None] | None = None
        """Called after each step of this machine while its broker runs."""
        self._links = links
        self._new_store = new_store
        self._chance = chance
        self._network_of = network_of

    def __repr__(self) -> str:
        return f"broker {self.broker_id}"

    # Life and death

    @property
    def node(self) -> Node:
        assert self.life is not None, f"{self} is not running"
        return self.life.node

    def start(self) -> None:
        """Starts a new process on the data of disk and store. Raises ProcessDied if it dies in its start."""
        assert self.life is None
        self.disk.begin_life()
        self.lives += 1
        store = self._new_store()
        life = Life(self.setup, self.lives, self.disk, self.clock, store, self._chance, self._network_of, self._reaches)
        self.life = life
        life.start()
        self._check_alive()
        self.network.attach(life.node)

    def stop(self) -> None:
        """Stops cleanly. Clients that still wait find their connections closed."""
        assert self.life is not None
        self.resume()
        self.life.finish(self.do)
        self._check_alive()
        self._forget_life()

    def kill(self) -> None:
        """Kills the process with kill -9: all writes stay, synced or not."""
        self._forget_life()

    def lose_power(self) -> None:
        """Cuts the power: unsynced writes are gone, torn or kept, as the disk picks."""
        self._forget_life()
        self.disk.lose_power()
        if not self.stopped_cleanly:
            self.disk.loss_not_noted = True

    @property
    def stopped_cleanly(self) -> bool:
        """True if the disk says that the last process synced all its logs before it ended."""
        paths = self.setup.data_directories
        return all(self.disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}") for path in paths)

    def replace_disk(self) -> None:
        """Puts an empty disk in the place of the old one. The broker does not run."""
        assert self.life is None
        self.disk.replace_platter()

    def lose_directory(self, path: str) -> None:
        """Empties one of the data directories, like a separate disk that is replaced. The broker does not run."""
        assert self.life is None
        self.disk.platter.remove_tree(path)
        self.disk.platter.sync_directory(path.rpartition("/")[0] or "/")

    def _forget_life(self) -> None:
        self.resume()
        life, self.life = self.life, None
        if life is not None:
            life.store.abandon(reaches_store=self._chance.random() < 0.5)
            life.kill()
        # The handles of this process are dead from now on.
        self.disk.begin_life()
        self.network.lose_everything()

    def pause(self, *, clock_stands_still: bool) -> None:
        """Stops the machine, or only the process on it."""
        self.paused = True
        self.clock.stands_still = clock_stands_still

    def resume(self) -> None:
        self.paused = self.clock.stands_still = False

    # Steps

    def steps(self) -> list[Step]:
        """The steps that could happen now, without time passing and without a client acting."""
        life, network, links, me = self.life, self.network, self._links, self.broker_id
        cut, reached, steps = bool(links.cuts), not self.paused, list[Step]()
        if life is not None and reached:
            steps = life.steps(
                syncs=self.clock.boot_ms >= self.slow_until_ms,
                store_answers=(not cut or links.carries(STORE, me)) and not life.store.another,
            )
        for exchange in network.answers:
            if not cut or links.carries(me, exchange.connection.source):
                steps.append(("answer", partial(network.deliver_answer, exchange)))
        if not reached:
            return steps
        for connection in network.connections:
            if cut and not links.carries(connection.source, me):
                continue
            if connection.stuck_until_ms is not None and connection.stuck_until_ms > self.clock.boot_ms:
                continue
            if life is None:
                steps.append(("refuse", partial(network.refuse, connection)))
                continue
            if connection.travelling and not connection.holds:
                steps.append(("request", partial(self._deliver_request, connection)))
            if not connection.open:
                steps.append(("close", partial(network.drop, connection)))
        return steps

    @property
    def next_deadline_in_ms(self) -> int | None:
        """The time until the next deadline here; None if no timer runs."""
        if self.life is None or self.paused:
            return None
        deadline_ms = self.life.loop.next_deadline_ms
        return None if deadline_ms is None else max(0, deadline_ms - self.clock.boot_ms)

    def _reaches(self, broker_id: int) -> bool:
        return self._links.carries(self.broker_id, broker_id) and self._links.carries(broker_id, self.broker_id)

    def _deliver_request(self, connection: Connection) -> None:
        assert self.life is not None
        self.network.deliver_request(connection, self.life.driver.now())

    def do(self, step: Callable[[], None]) -> None:
        """Takes one step. Raises ProcessDied if the process dies in it, BrokerFailed if the broker gives up."""
        try:
            step()
        except EnvironmentFailure as failure:
            # A request failed: the broker closes that connection, and goes on unless a sync failed.
            survived = self.life is not None and self.life.driver.survived(failure)
            if isinstance(failure, SyncFailure) and not survived:
                raise BrokerFailed(self.broker_id, failure) from failure
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
            raise ProcessDied(self.disk.last_operation, self.broker_id)
        failure = None if self.life is None else self.life.failure
        if failure is not None:
            if isinstance(failure, SyncFailure):
                raise BrokerFailed(self.broker_id, failure) from failure
            raise failure

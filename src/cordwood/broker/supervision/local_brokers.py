"""Brokers of one cluster as processes of this machine: started, waited for, and stopped together."""

import asyncio
import contextlib
import random
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from cordwood.broker.supervision.children import Child
from cordwood.cluster.metadata.rows import BROKERS, BrokerRow, decode_broker
from cordwood.cluster.roll_call import RollCall
from cordwood.model.errors import EnvironmentFailure
from cordwood.model.failure import Failure
from cordwood.model.settings.listeners import EVERY_INTERFACE, SASL_SSL, host_and_port

if TYPE_CHECKING:
    from cordwood.broker.secure.client_files import SecureDirectory
    from cordwood.cluster.stores.interface import MetadataStore

METADATA_FILE = "metadata.sqlite"
SOCKET_FILE = "metadata.sock"
_LOOK_EVERY_S = 0.05
_PORTS_TO_TRY = range(15_000, 32_000)
_SAY_EVERY_S = 10.0


@dataclass(slots=True)
class Broker:
    """One broker, and its process once it was launched."""

    node_id: int
    host: str
    port: int
    command: tuple[str, ...]
    """The arguments of `cordwood`."""
    environment: Mapping[str, str]
    output: str | None
    """The file for its output; None: the output goes to that of this process."""
    child: Child

    @classmethod
    async def launched(
        cls,
        node_id: int,
        host: str,
        port: int,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        output: str | None,
    ) -> "Broker":
        """Launches the process. Raises OSError."""
        child = await _launch(node_id, command, environment, output)
        return cls(node_id, host, port, command, environment, output, child)

    async def launch_again(self) -> None:
        """Launches the process again. Raises OSError."""
        self.child = await _launch(self.node_id, self.command, self.environment, self.output)

    @property
    def address(self) -> str:
        """The address at which a client on this machine reaches the broker."""
        return host_and_port("127.0.0.1" if self.host in EVERY_INTERFACE else self.host, self.port)

    @property
    def where_it_speaks(self) -> str:
        return "its output is above" if self.output is None else f"its output is in {self.output}"

    def waits_for(self, row: BrokerRow | None) -> str:
        state = "not registered" if row is None else "fenced" if row.fenced else "does not know all brokers yet"
        return f"broker {self.node_id} ({state}; {self.where_it_speaks})"


async def _launch(node_id: int, command: tuple[str, ...], environment: Mapping[str, str], output: str | None) -> Child:
    return await Child.launch(
        f"broker {node_id}", (sys.executable, "-m", "cordwood.cli", *command), output, environment
    )


def words_of(settings: Mapping[str, str]) -> list[str]:
    """The arguments of `cordwood serve` for settings."""
    return [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]


async def registered(store: "MetadataStore") -> dict[int, BrokerRow]:
    """The registrations of brokers."""
    items = (await store.list(BROKERS)).items
    return {int(item.key.removeprefix(BROKERS)): decode_broker(item.key, item.value) for item in items}


async def until_all_serve(
    brokers: Iterable[Broker], store: "MetadataStore", earlier: set[str], say: Callable[[str], None]
) -> None:
    """Waits for new registrations without a fence, and then until each broker has seen those of all others: a
    controller that does not know the last one refuses topics. Raises Failure if a broker ends."""
    brokers = list(brokers)

    async def not_serving() -> list[Broker]:
        rows = await registered(store)
        return [each for each in brokers if not _serves(rows.get(each.node_id), earlier)]

    await _until_none(brokers, not_serving, store, say)
    call = await RollCall.begin(store)

    async def not_knowing() -> list[Broker]:
        answered = await call.answered()
        return [each for each in brokers if each.node_id not in answered]

    await _until_none(brokers, not_knowing, store, say)
    await call.end()


def _serves(row: BrokerRow | None, earlier: set[str]) -> bool:
    return row is not None and not row.fenced and row.incarnation not in earlier


async def _until_none(
    brokers: Iterable[Broker],
    lacking: Callable[[], Awaitable[list[Broker]]],
    store: "MetadataStore",
    say: Callable[[str], None],
) -> None:
    """Waits until no broker lacks something. Raises Failure if a broker ends."""
    clock_s = asyncio.get_running_loop().time
    say_at_s = clock_s() + _SAY_EVERY_S
    while waiting := await lacking():
        for broker in brokers:
            if broker.child.ended:
                said = broker.child.last_words()
                raise Failure(
                    "BROKER_ENDED",
                    f"broker {broker.node_id} ended: {broker.child.exit_reason}"
                    + (f". It said:\n{said}" if said else f": {broker.where_it_speaks}"),
                )
        if clock_s() > say_at_s:
            say_at_s = clock_s() + _SAY_EVERY_S
            rows = await registered(store)
            say("still waiting for " + ", ".join(each.waits_for(rows.get(each.node_id)) for each in waiting))
        await asyncio.sleep(_LOOK_EVERY_S)


def bootstrap_servers(brokers: Iterable[Broker]) -> str:
    return ",".join(broker.address for broker in brokers)


def describe(brokers: Iterable[Broker], secure: "SecureDirectory | None" = None) -> dict[str, object]:
    """The line for scripts. `secure`: the files with which clients reach secure brokers."""
    brokers = list(brokers)
    nodes = [{"id": broker.node_id, "pid": broker.child.pid} for broker in brokers]
    files = {} if secure is None else {"secure": {"listener": SASL_SSL, **secure.present_files()}}
    return {"bootstrap_servers": bootstrap_servers(brokers), "nodes": nodes, **files}


def free_ports(count: int) -> list[int]:
    """Free ports of the loopback address, below those that the kernel gives to connections: a broker that is started
    again finds its port free."""
    free: list[int] = []
    for port in random.sample(_PORTS_TO_TRY, len(_PORTS_TO_TRY)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            free.append(port)
        if len(free) == count:
            return free
    raise Failure("CLUSTER", "there are not enough free ports", "give the first of a range of ports")


class LocalBrokers(ABC):
    """The brokers of one cluster on this machine, and whatever runs beside them. Callers always `down`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` prints a text for people."""
        self._say = say
        self._ends: list[Callable[[], Awaitable[None]]] = []
        """The parts to end, in the order in which they were started."""
        self._store: MetadataStore
        self.brokers: list[Broker] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self.failed: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when the brokers cannot go on."""

    @abstractmethod
    async def up(self) -> None:
        """Starts all. Returns when all brokers listen, and the controller has lifted their fences. Raises Failure."""

    async def _serve_store(self, directory: str, cluster: str) -> str:
        """Serves the store of this process to the brokers. Returns its address."""
        from cordwood.cluster.stores.socket.server import StoreServer

        server = await StoreServer.start(self._store, f"{directory}/{SOCKET_FILE}", cluster)
        self._ends.append(server.close)
        return f"unix://{directory}/{SOCKET_FILE}"

    async def _launch(
        self,
        node_id: int,
        address: tuple[str, int],
        words: Iterable[str],
        environment: Mapping[str, str],
        output: str | None,
    ) -> Broker:
        """Launches `cordwood serve` with these words. Raises OSError."""
        broker = await Broker.launched(node_id, *address, ("serve", *words), environment, output)
        if not self.brokers:
            self._ends.append(self._stop_brokers)
        self.brokers.append(broker)
        return broker

    async def _stop_brokers(self) -> None:
        await asyncio.gather(*(broker.child.stop() for broker in self.brokers))

    async def down(self) -> None:
        """Ends everything that was started, the latest first."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        while self._ends:
            await self._ends.pop()()


S = TypeVar("S", bound=LocalBrokers)


async def run(make: Callable[[], S], ready: Callable[[S], None], say: Callable[[str], None]) -> None:
    """Runs a supervisor until SIGTERM, SIGINT or SIGHUP. Raises Failure."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, told.set)
    supervisor = make()
    stopping = asyncio.ensure_future(told.wait())
    starting = asyncio.ensure_future(supervisor.up())
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            ready(supervisor)
            ends: list[asyncio.Future[Any]] = [stopping, supervisor.failed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if supervisor.failed.done():
                raise supervisor.failed.result()
            say("stopping all brokers")
    except (EnvironmentFailure, OSError) as error:
        raise Failure("CLUSTER", str(error)) from error
    finally:
        stopping.cancel()
        starting.cancel()
        await asyncio.wait([starting])
        await supervisor.down()

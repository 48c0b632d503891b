"""A broker inside this process, on an event loop in a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import uvloop

from cordwood.broker.secure.plain_text import plain_text_problem, ways_out
from cordwood.broker.server import Server
from cordwood.broker.storage.memory import Memory
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.embedded.faults import Faults
from cordwood.embedded.in_process_log import InProcessLog
from cordwood.embedded.loop_calls import BrokerStopped, LoopCalls
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.configuration import load_settings
from cordwood.model.settings.listeners import host_and_port
from cordwood.model.settings.setting import InvalidSetting

if TYPE_CHECKING:
    from cordwood.embedded.secure import SecureSide

_STOP_TIMEOUT_S: Final = 30.0
_ASK_NOBODY: Final = 'settings={"authorizer.class.name": ""}'
_DIRECTORY_NAMES: Final = ("log.dirs", "log.dir")
_DELETE_DELAY_IN_MEMORY_MS: Final = 1_000
"""How long a broker in memory keeps deleted topics, for answers under way. A minute, as on disk, would cost gigabytes
of memory if a client keeps writing topics and deleting them."""


class Broker:
    """A whole broker that any Kafka client can use.

        with Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Without `data_dir` the data is in memory and lives as long as this object. With `data_dir` the data is on disk, as
    durable as with `cordwood serve`. `settings` are a broker's settings by name: `{"num.partitions": 3}`.

    After `stop`, `start` brings the broker back on the same port, with the same data. With the settings `cluster.name`,
    `cluster.store` and `node.id` the broker joins a cluster.

    A broker with `secure=True` has one listener, with TLS and log-ins, and holds clients to rules of access: `users`
    has passwords by name, and `client_settings("alice")` all that a client needs.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str | int | float | bool] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        secure: bool = False,
        users: Mapping[str, str] | None = None,
    ) -> None:
        given = _texts(settings)
        self._secure = secure_side(secure=secure, users=users)
        texts = {"listeners": f"PLAINTEXT://{host}:{port}"}
        if data_dir is not None:
            texts["log.dirs"] = os.fspath(data_dir)
        else:
            texts["log.segment.delete.delay.ms"] = str(_DELETE_DELAY_IN_MEMORY_MS)
        texts |= given
        if self._secure is not None:
            texts |= self._secure.settings(host, port, given, data_dir)
        elif data_dir is not None and (problem := plain_text_problem(os.fspath(data_dir), given)):
            raise InvalidSetting(f"{problem}: {ways_out(_ASK_NOBODY)}")
        self._settings: BrokerSettings = load_settings(settings=texts)
        self._memory = Memory() if data_dir is None else None
        self._calls = LoopCalls()
        self._log = InProcessLog(self._calls)
        self._faults = Faults(self._faults_changed)
        self._run: _Run | None = None

    def __repr__(self) -> str:
        return f"<Broker {self._calls.where}>"

    def start(self) -> Self:
        """Starts the broker, and returns when clients can connect. Raises EnvironmentFailure or OSError if the broker
        cannot start.

        After a `stop` the broker comes back on the same port, with the same data.
        """
        if self._run is not None and self._run.alive:
            raise RuntimeError(f"the broker is already running, at {self.bootstrap_servers}")
        first_writes = None if self._secure is None else self._secure.write_users
        self._run = run = _Run(
            self._settings, self._memory, first_writes, self._before_listening, self._calls.broker_stopped
        )
        try:
            server = run.start()
            self._settings = _with_ports(self._settings, server.addresses)
            self._calls.broker_started(run.loop, server)
        except BaseException:
            # After an interrupt (Ctrl-C) the broker would run on, and no caller would have it to stop it.
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Finishes requests under way and closes everything. Safe to call twice. Does nothing in a forked process."""
        if self._run is not None:
            self._run.stop()

    def kill(self) -> None:
        """Ends the broker as kill -9 ends a process: connections break, and nothing is answered or handed over to other
        brokers of the cluster. `start` brings it back. Does nothing in a forked process."""
        if self._run is not None:
            self._run.stop(kill=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def host(self) -> str:
        return self._calls.server.address[0]

    @property
    def port(self) -> int:
        return self._calls.server.address[1]

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's `bootstrap.servers`: the address of the first listener."""
        return host_and_port(*self._calls.server.address)

    def client_settings(self, user: str = "") -> dict[str, Any]:
        """The settings of a client on librdkafka, as confluent-kafka takes them: where the broker is and, of a secure
        one, whom to trust and how the user logs in. Without a name: `admin`, who may do everything.

        Raises ValueError for a user that `users` did not name."""
        return client_settings(self._secure, user, self.bootstrap_servers)

    @property
    def listeners(self) -> dict[str, str]:
        """The values for `bootstrap.servers` of the clients of each listener, by its name."""
        return {name: host_and_port(*address) for name, address in self._calls.server.addresses.items()}

    @property
    def log(self) -> InProcessLog:
        """Appending and reading without a client and without a socket."""
        return self._log

    @property
    def faults(self) -> Faults:
        """Errors, delays and lost connections on demand."""
        return self._faults

    def _before_listening(self, server: Server) -> None:
        if self._faults.any_set:
            from cordwood.embedded.fault_front import FaultFront

            FaultFront(server, self._faults).refresh()

    def _faults_changed(self) -> None:
        """Has the broker obey the present faults, and returns when it does. A stopped broker obeys them from its start
        on."""
        # Imported with the first fault, so that brokers without faults start sooner.
        from cordwood.embedded.fault_front import FaultFront

        def refresh(server: Server, done: Callable[[None], None]) -> None:
            FaultFront(server, self._faults).refresh()
            done(None)

        with suppress(BrokerStopped):
            self._calls.ask(refresh, _STOP_TIMEOUT_S)


def secure_side(*, secure: bool, users: Mapping[str, str] | None) -> "SecureSide | None":
    """What a secure broker has beside a plain one; None for a plain one."""
    if not secure:
        if users:
            raise InvalidSetting("users need secure=True: a broker that speaks plain text asks nobody who he is")
        return None
    # Imported only by secure brokers, so that others start sooner.
    from cordwood.embedded.secure import SecureSide

    return SecureSide(users or {})


def client_settings(secure: "SecureSide | None", user: str, servers: str) -> dict[str, Any]:
    if secure is not None:
        return secure.client_settings(user, servers)
    if user:
        raise ValueError(f"there is no user {user!r}: only secure=True has users")
    return {"bootstrap.servers": servers}


def _texts(settings: Any) -> dict[str, str]:
    """The settings that a program gives, as a configuration has them."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise TypeError(f"settings must be a mapping of names to values, not {type(settings).__name__}")
    texts = {}
    for name, value in settings.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a setting must be str, not {type(name).__name__}")
        if name.strip() in _DIRECTORY_NAMES:
            raise InvalidSetting(f"an embedded broker takes no setting {name}: data_dir puts its data on disk")
        texts[name.strip()] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def _with_ports(settings: BrokerSettings, addresses: Mapping[str, tuple[str, int]]) -> BrokerSettings:
    """The settings with the ports that port 0 became: clients find the broker there after a restart."""
    listeners = [
        str(listener.address._replace(port=addresses[listener.name][1])) for listener in settings.listener_list
    ]
    return BrokerSettings.from_texts({**settings.texts, "listeners": ",".join(listeners)})


class _Run:
    """One run of a broker, from its start to its end: an event loop in a thread."""

    def __init__(
        self,
        settings: BrokerSettings,
        memory: Memory | None,
        first_writes: Callable[[MetadataWriter], Awaitable[None]] | None,
        before_listening: Callable[[Server], None],
        ended: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._first_writes = first_writes
        self._before_listening = before_listening
        self._when_ended = ended
        self._process_id = os.getpid()
        self._told_to_stop = asyncio.Event()
        self._killed = False
        self._started: Future[Server] = Future()
        self._ended: Future[None] = Future()
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="cordwood-broker", daemon=True)

    @property
    def alive(self) -> bool:
        """True if the broker runs or is still stopping; in a forked process, True if it did at the fork."""
        return self._thread.is_alive() or (os.getpid() != self._process_id and not self._ended.done())

    def start(self) -> Server:
        self._thread.start()
        return self._started.result()

    def stop(self, *, kill: bool = False) -> None:
        if os.getpid() != self._process_id:
            return
        self._killed = kill
        with suppress(RuntimeError):  # the loop has ended already
            self.loop.call_soon_threadsafe(self._told_to_stop.set)
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)
        if self._ended.done():
            self._ended.result()

    # In the broker's thread

    def _work(self) -> None:
        failure: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._serve())
        except BaseException as raised:
            failure = raised
        # The broker's state changes first: a caller that hears of the end may start it again, and that run must not
        # count as stopped.
        self._when_ended()
        if not self._started.done():
            assert failure is not None
            self._started.set_exception(failure)
        elif failure is not None:
            self._ended.set_exception(failure)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        server = await Server.start(
            self._settings,
            memory=self._memory,
            before_listening=self._before_listening,
            first_writes=self._first_writes,
        )
        self._started.set_result(server)
        told = asyncio.ensure_future(self._told_to_stop.wait())
        ends: list[asyncio.Future[Any]] = [told, server.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if self._killed:
            await server.abandon()
        else:
            await server.stop()
        if server.failed.done():
            raise server.failed.result()

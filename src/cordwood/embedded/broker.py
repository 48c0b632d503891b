"""A broker inside this process, on a loop in a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import uvloop

from cordwood.broker.server import Server
from cordwood.embedded.in_process_log import BrokerStopped, InProcessLog
from cordwood.model.broker_settings import BrokerSettings
from cordwood.model.configuration import load_settings
from cordwood.model.settings import InvalidSetting

_STOP_TIMEOUT_S = 30.0
_DIRECTORY_NAMES = ("log.dirs", "log.dir")


class Broker:
    """A whole broker that any Kafka client can use.

        with Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Without `data_dir` everything is in memory and gone when the broker stops. With it the data is on disk, as durable
    as a served broker's. `settings` are a broker's settings by name: `{"num.partitions": 3}`.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str | int | float | bool] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        texts = {"listeners": f"PLAINTEXT://{host}:{port}"}
        if data_dir is not None:
            texts["log.dirs"] = os.fspath(data_dir)
        for name, value in (settings or {}).items():
            if name.strip() in _DIRECTORY_NAMES:
                raise InvalidSetting(f"{name} is not for settings here: use data_dir, which puts the data on disk")
            texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
        self._settings: BrokerSettings = load_settings(flags=[f"{name}={text}" for name, text in texts.items()])
        self._in_memory = data_dir is None
        self._thread: threading.Thread | None = None
        self._server: Server | None = None
        self._log: InProcessLog | None = None
        self._told_to_stop = asyncio.Event()
        self._ended: Future[None] = Future()

    def start(self) -> Self:
        """Returns when clients can connect. Raises EnvironmentFailure or OSError if they never will."""
        assert self._thread is None, "an embedded broker is started once"
        started: Future[Server] = Future()
        self._process_id = os.getpid()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(started,), name="cordwood-broker", daemon=True)
        try:
            self._thread.start()
            self._server = started.result()
            self._log = InProcessLog(self._loop, self._server)
        except BaseException:
            # Interrupted, perhaps: the broker would go on, and nobody would have it to stop it.
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Finishes what is under way and closes everything. Safe to call twice. In a fork it does nothing."""
        if self._thread is None or os.getpid() != self._process_id:
            return
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._told_to_stop.set)
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)
        if self._ended.done():
            self._ended.result()

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
        return self._running.address[0]

    @property
    def port(self) -> int:
        return self._running.address[1]

    @property
    def bootstrap_servers(self) -> str:
        """What a client's `bootstrap.servers` has to say."""
        host, port = self._running.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def log(self) -> InProcessLog:
        """Appending and reading without a client and without a socket."""
        assert self._log is not None, "the broker is not started"
        return self._log

    @property
    def _running(self) -> Server:
        assert self._server is not None, "the broker is not started"
        if self._ended.done():
            raise BrokerStopped
        return self._server

    # In the broker's thread

    def _run(self, started: "Future[Server]") -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve(started))
        except BaseException as failure:
            if not started.done():
                started.set_exception(failure)
            else:
                self._ended.set_exception(failure)
        else:
            self._ended.set_result(None)
        if self._log is not None:
            self._log.broker_stopped()

    async def _serve(self, started: "Future[Server]") -> None:
        server = await Server.start(self._settings, in_memory=self._in_memory)
        started.set_result(server)
        told = asyncio.ensure_future(self._told_to_stop.wait())
        ends: list[asyncio.Future[Any]] = [told, server.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        await server.stop()
        if server.failed.done():
            raise server.failed.result()

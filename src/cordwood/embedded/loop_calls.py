"""Calls from any thread into the loop of the broker in this process. Every start of the broker has a new loop."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from cordwood.broker.server import Server
from cordwood.log.log import ColdRead
from cordwood.model.errors import EnvironmentFailure, ProtocolError
from cordwood.model.settings.listeners import host_and_port

T = TypeVar("T")


class BrokerStopped(EnvironmentFailure):
    def __init__(self, message: str = "the broker has stopped") -> None:
        super().__init__(message)


class LoopCalls:
    """Calls into the loop of one `Broker`. Methods may be called from any thread but the broker's own."""

    def __init__(self) -> None:
        self._running: tuple[asyncio.AbstractEventLoop, Server] | None = None
        self._process_id: int | None = None
        """The process that started the broker last."""
        self._unanswered: set[Future[Any]] = set()

    def broker_started(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        self._process_id = os.getpid()
        self._running = loop, server

    def broker_stopped(self) -> None:
        """Raises BrokerStopped in every call that still waits for an answer."""
        self._running = None
        for answer in list(self._unanswered):
            if not answer.done():
                answer.set_exception(BrokerStopped())

    @property
    def server(self) -> Server:
        """The running server. Raises BrokerStopped if there is none."""
        return self._now_running()[1]

    @property
    def where(self) -> str:
        """The address of the broker, or why it has none, in words."""
        try:
            return f"at {host_and_port(*self.server.address)}"
        except BrokerStopped as stopped:
            return f"at no address: {stopped}"

    def ask(self, start: Callable[[Server, Callable[[T | Exception], None]], None], timeout_s: float) -> T:
        """Runs `start` in the loop, and returns the value that `start` hands to its callback."""
        loop, server = self._now_running()
        if os.getpid() != self._process_id:
            raise BrokerStopped(
                f"the broker runs in process {self._process_id}, not in this fork of that process: use a client"
            )
        answer: Future[T] = Future()
        self._unanswered.add(answer)

        def done(result: T | Exception) -> None:
            if answer.done():
                return
            if isinstance(result, Exception) and not isinstance(result, ColdRead):
                answer.set_exception(result)
            else:
                answer.set_result(result)  # type: ignore[arg-type]

        def begin() -> None:
            try:
                start(server, done)
            except (ProtocolError, EnvironmentFailure) as refusal:
                done(refusal)
            except Exception as failure:
                done(failure)
                raise

        def in_loop() -> None:
            if not server.driver.run(begin):
                done(BrokerStopped())

        try:
            loop.call_soon_threadsafe(in_loop)
            return answer.result(timeout_s)
        except RuntimeError:
            # The loop is closed.
            raise BrokerStopped from None
        finally:
            self._unanswered.discard(answer)

    def _now_running(self) -> tuple[asyncio.AbstractEventLoop, Server]:
        if self._running is None:
            raise BrokerStopped if self._process_id is not None else BrokerStopped("the broker has not been started")
        return self._running

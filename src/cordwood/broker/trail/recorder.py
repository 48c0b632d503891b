"""The security trail of a broker: what the node and the listeners tell it, on its way to the file.

Repeated events are counted here, in the loop, so that a flood of refusals fills no queue and no disk.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from cordwood.broker.trail.rotating_file import RotatingFile
from cordwood.broker.trail.writer import TrailWriter
from cordwood.model.errors import ErrorCode
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.security.sessions import ANONYMOUS, Session
from cordwood.security.trail.events import Event, Told, What, cut
from cordwood.security.trail.port import Changed
from cordwood.security.trail.repeats import Repeats

_HAPPENED = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
"""A change that was answered so was made, or may have been made."""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class SecurityTrail:
    """Implements `Trail` in the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        writer: TrailWriter,
        window_ms: int,
        *,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._repeats = Repeats(window_ms)
        self._window_s = window_ms / 1000
        self._wall_ms = wall_ms
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @classmethod
    def kept_by(cls, loop: asyncio.AbstractEventLoop, settings: BrokerSettings) -> SecurityTrail:
        """The trail of a broker. Opens its file with the first event."""
        directory = settings.security_trail_directory or f"{settings.data_directories[0]}/security-trail"
        path = os.path.abspath(f"{directory}/broker-{settings.node_id}.jsonl")
        file = RotatingFile(path, settings.security_trail_file_bytes, settings.security_trail_files)
        return cls(loop, TrailWriter(file, settings.node_id), settings.security_trail_window_ms)

    @property
    def lines(self) -> int:
        """Lines that were written."""
        return self._writer.written

    @property
    def lost(self) -> int:
        """Events that were not written, and will not be."""
        return self._writer.lost

    def changed(self, session: Session, api: str, changed: Changed) -> None:
        error = ErrorCode(changed.error_code)
        what = What.CHANGE if error in _HAPPENED else What.FAILED_CHANGE
        self._note(
            Event(
                what,
                str(session.principal),
                session.host,
                session.entrance.name,
                api,
                changed.operation,
                changed.kind,
                cut(changed.name),
                error,
                cut(changed.change),
            )
        )

    def refused(
        self, session: Session, api: str, operation: Operation, kind: ResourceKind, name: str, *, enforced: bool
    ) -> None:
        what = What.REFUSAL if enforced else What.DRY_REFUSAL
        error = kind.refusal if enforced else ErrorCode.NONE
        self._note(
            Event(
                what,
                str(session.principal),
                session.host,
                session.entrance.name,
                api,
                operation,
                kind,
                cut(name),
                error,
                f"the right is missing: {operation} of the {kind}",
            )
        )

    def logged_in(self, session: Session) -> None:
        self._note(
            Event(What.LOG_IN, str(session.principal), session.host, session.entrance.name, session.mechanism or "none")
        )

    def not_logged_in(self, session: Session, mechanism: str, user: str, reason: str) -> None:
        principal = str(ANONYMOUS._replace(name=user)) if user else ""
        if not user and session.mechanism is not None:
            principal = str(session.principal)
        self._note(
            Event(
                What.FAILED_LOG_IN,
                cut(principal),
                session.host,
                session.entrance.name,
                mechanism or "none",
                error=ErrorCode.SASL_AUTHENTICATION_FAILED,
                words=cut(reason),
            )
        )

    def handshake_failed(self, listener: str, host: str, reason: str) -> None:
        error = ErrorCode.SASL_AUTHENTICATION_FAILED
        self._note(Event(What.FAILED_HANDSHAKE, "", host, listener, "TLS", error=error, words=cut(reason)))

    def _note(self, event: Event) -> None:
        if self._closed:
            return
        now_ms = self._wall_ms()
        if not event.is_counted or self._repeats.is_first(event, now_ms):
            self._writer.put(Told(event, 1, now_ms, now_ms))
        if event.is_counted and self._timer is None:
            self._timer = self._loop.call_later(self._window_s, self._windows_end)

    def _windows_end(self) -> None:
        self._timer = None
        now_ms = self._wall_ms()
        for told in self._repeats.ended(now_ms):
            self._writer.put(told)
        next_end_ms = self._repeats.next_end_ms
        if next_end_ms is not None:
            # A wall clock that was set back must not keep windows open.
            wait_s = min(max(0.01, (next_end_ms - now_ms) / 1000), self._window_s)
            self._timer = self._loop.call_later(wait_s, self._windows_end)

    def close(self) -> None:
        """Writes what was counted, and ends the thread. Takes seconds at most."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for told in self._repeats.ended(None):
            self._writer.put(told)
        self._writer.close()

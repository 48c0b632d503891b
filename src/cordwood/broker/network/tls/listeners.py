"""The listeners with TLS: their contexts, and the files of their certificates, which may change while the broker runs.

Every LOOK_S a thread looks whether a file differs from the one that was read. Changed certificates serve the next
connection; open ones live on. Files that cannot be served, such as a new certificate beside an old key, are refused
with a log line, and the certificates of before go on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple

from cordwood.broker.machine.fair_workers import FairWorkers
from cordwood.broker.machine.threads import Workers
from cordwood.broker.network.tls.certificates import files_of, read_certificates, subject_of_peer
from cordwood.broker.network.tls.contexts import make_context, make_dialling_context
from cordwood.broker.network.tls.layer import TlsResources
from cordwood.model.errors import BadCertificates
from cordwood.model.settings.principal_rules import PrincipalRules
from cordwood.model.settings.tls_settings import ListenerTls
from cordwood.security.sessions import Principal
from cordwood.security.trail.port import Trail

logger = logging.getLogger("cordwood.broker")

LOOK_S: Final = 5.0
_THREADS: Final = 2
_THREADS_OF_ADDRESS: Final = 1
"""Handshakes have two threads; one address gets one at a time, so that others are served beside a flood of it."""

FileState = tuple[tuple[int, int, int], ...]
"""What tells a changed file from the one before: time, size and inode of each."""


class _Served(NamedTuple):
    """The certificates that are served now."""

    context: ssl.SSLContext
    dialling: ssl.SSLContext | None
    """The context of connections to other brokers; None: this is not their listener."""
    expires_s: float
    files: FileState


class TlsListener:
    """One listener with TLS. Raises BadCertificates if its files cannot be served."""

    def __init__(self, settings: ListenerTls, *, dials: bool = False) -> None:
        """`dials`: the broker connects to other brokers' listeners of this name."""
        self._settings = settings
        self._dials = dials
        self._rules = PrincipalRules(settings.principal_rules)
        self._served = self._load()
        self._refused: FileState | None = None
        """The state of files that cannot be served."""
        self.failures = 0
        """Handshakes that failed."""

    @property
    def name(self) -> str:
        return self._settings.listener

    @property
    def context(self) -> ssl.SSLContext:
        return self._served.context

    @property
    def dialling_context(self) -> ssl.SSLContext | None:
        """The context of the next connection to another broker; None: brokers do not use this listener."""
        return self._served.dialling

    @property
    def expires_s(self) -> float:
        """When the certificate ends, as a Unix time."""
        return self._served.expires_s

    def handshake_failed(self) -> None:
        self.failures += 1

    def principal_of(self, connection: ssl.SSLObject) -> Principal | None:
        der = connection.getpeercert(binary_form=True)
        if der is None:
            return None
        subject = subject_of_peer(der, datetime.now(UTC))
        name = self._rules.name_of(subject)
        if name is None:
            raise ValueError(f"no rule of ssl.principal.mapping.rules matches the subject {subject:.200}")
        if not name:
            raise ValueError(f"a rule of ssl.principal.mapping.rules gives the subject {subject:.200} an empty name")
        return Principal("User", name)

    def look(self) -> None:
        """Serves the files if they have changed. Runs in a thread."""
        files = _state_of(files_of(self._settings))
        if files in (self._served.files, self._refused):
            return
        try:
            self._served = self._load()
        except BadCertificates as failure:
            self._refused = files
            logger.error("the changed certificates of %s are not served, those of before are: %s", self.name, failure)
        else:
            self._refused = None
            logger.info("serving changed certificates of %s, until %s", self.name, _day(self.expires_s))

    def _load(self) -> _Served:
        # The state is taken first: a change during the reading is found at the next look.
        files = _state_of(files_of(self._settings))
        certificates = read_certificates(self._settings)
        dialling = make_dialling_context(self._settings, certificates) if self._dials else None
        return _Served(make_context(self._settings, certificates), dialling, certificates.expires_s, files)


class TlsListeners:
    """All listeners with TLS of one broker. Raises BadCertificates before anything is opened."""

    def __init__(self, settings: Mapping[str, ListenerTls], between_brokers: str = "") -> None:
        """`between_brokers`: the listener that brokers use among themselves, with TLS or without."""
        self._by_name = {name: TlsListener(each, dials=name == between_brokers) for name, each in settings.items()}
        self._workers: Workers | None = None
        self._threads: FairWorkers | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __getitem__(self, name: str) -> TlsListener:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @property
    def failures(self) -> int:
        return sum(each.failures for each in self._by_name.values())

    @property
    def expiries(self) -> list[tuple[str, float]]:
        """When the certificate of each listener ends, as a Unix time, by its name."""
        return [(name, each.expires_s) for name, each in sorted(self._by_name.items())]

    def begin(self, loop: asyncio.AbstractEventLoop, trail: Trail | None = None) -> TlsResources:
        """Watches the files from now on. Returns the resources of the layers of connections. `trail`: hears of peers
        that make no TLS connection."""
        self._workers = Workers(loop, "tls", _THREADS)
        self._threads = FairWorkers(self._workers, _THREADS, _THREADS_OF_ADDRESS)
        self._wait(loop, self._threads)
        return TlsResources(loop, self._threads, trail)

    def _wait(self, loop: asyncio.AbstractEventLoop, threads: FairWorkers) -> None:
        def looked(result: Exception | None) -> None:
            if isinstance(result, Exception):
                logger.error("the files of certificates cannot be watched: %s", result, exc_info=result)
            if self._threads is not None:
                self._wait(loop, threads)

        self._timer = loop.call_later(LOOK_S, lambda: threads.submit(self, self._look, looked))

    def _look(self) -> None:
        for listener in self._by_name.values():
            listener.look()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()


def _state_of(files: Iterable[str]) -> FileState:
    found = []
    for file in files:
        with suppress(OSError):
            state = os.stat(file)
            found.append((state.st_mtime_ns, state.st_size, state.st_ino))
    return tuple(found)


def _day(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M} UTC"

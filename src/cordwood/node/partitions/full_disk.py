"""Tells operators and other brokers of a disk without space for records.

Acknowledgements of all replicas would wait for a follower that cannot append, and a leader without space refuses every
record. So the broker says in its registration that its disk is full: the controller lets replicas with room lead, and
leaders take the broker out of their in-sync sets. The broker withdraws the note when the disk has room and no append
has failed for a while. A lone broker shows the full disk in `cluster status`, `/ready` and metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cordwood.model.errors import DiskFull
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports

LOOK_MS = 1_000
"""The pause between two looks for room, and before another attempt to write the registration."""
CALM_MS = 5_000
"""The least time from the last failed append to the withdrawal: each change moves leaderships."""
ROOM_BYTES = 64 << 20
ROOM_SHARE = 20
"""A disk has room with ROOM_BYTES, or one part in ROOM_SHARE, whichever is less."""


class FullDisk:
    def __init__(
        self, loop: Loop, free_bytes: Callable[[], list[tuple[int, int]]], reports: Reports, *, shared: bool
    ) -> None:
        """`free_bytes` gives the size of each disk and its free bytes. `shared`: other brokers share the metadata."""
        self._loop = loop
        self._free_bytes = free_bytes
        self._reports = reports
        self._shared = shared
        self.full = False
        """True if this broker found no space for records on its disk."""
        self._failed_ms = 0
        """The time of the last failed append."""
        self._saying = False

    def found(self, failure: DiskFull) -> None:
        """Notes that an append found no space."""
        self._failed_ms = self._loop.now.boot_ms
        if self.full:
            return
        self.full = True
        words = "leaves in-sync sets" if self._shared else "refuses records"
        self._reports.report(logging.WARNING, f"this broker {words}, for its disk is full: {failure}")
        self._say()
        self._loop.after(LOOK_MS, self._look)

    def _say(self) -> None:
        """Tells the other brokers, if there are any."""
        if self._saying or not self._shared:
            return
        self._saying, full = True, self.full

        def done(result: Exception | None) -> None:
            self._saying = False
            if isinstance(result, Exception):
                self._reports.failure(result)
                self._loop.after(LOOK_MS, lambda now: self._say())
            elif full is not self.full:
                self._say()

        self._loop.effects.metadata(lambda writer: writer.registration.say_disk_full(full), done)

    def _look(self, now: Moment) -> None:
        """Looks for room, until there is some."""
        if now.boot_ms - self._failed_ms < CALM_MS:
            self._loop.after(LOOK_MS, self._look)
        else:
            self._loop.effects.blocking(self._free_bytes, self._measured)

    def _measured(self, result: list[tuple[int, int]] | Exception) -> None:
        if isinstance(result, Exception):
            self._reports.failure(result)
        else:
            calm = self._loop.now.boot_ms - self._failed_ms >= CALM_MS
            if calm and all(free >= min(ROOM_BYTES, size // ROOM_SHARE) for size, free in result):
                self.full = False
                words = "may be in sync" if self._shared else "takes records"
                self._reports.report(logging.INFO, f"this broker {words} again, for its disk has room")
                self._say()
                return
        self._loop.after(LOOK_MS, self._look)

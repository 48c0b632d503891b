"""The thread that writes the security trail, and the bounded queue in front of it.

Nobody waits for the trail. While its file cannot be written the thread tries again each second; events that find the
queue full meanwhile are lost, and counted: by a metric at once, by a line of the trail and of the broker's log as soon
as the file can be written again.
"""

from __future__ import annotations

import logging
import threading
import time
from queue import Empty, SimpleQueue
from typing import Final

from cordwood.broker.trail.rotating_file import RotatingFile
from cordwood.security.trail.events import Told
from cordwood.security.trail.ocsf import line, line_of_lost

logger = logging.getLogger("cordwood.broker")

MOST_WAITING: Final = 10_000
"""Events of some kilobytes at most: a peer's texts are cut."""
_AT_ONCE: Final = 500
RETRY_S: Final = 1.0
LAST_LINES_S: Final = 2.0
"""The wait of a stopping broker for the last lines."""


class TrailWriter:
    def __init__(self, file: RotatingFile, broker_id: int, *, retry_s: float = RETRY_S) -> None:
        self._file = file
        self._broker_id = broker_id
        self._retry_s = retry_s
        self._queue: SimpleQueue[Told | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._waiting = 0
        self._count_lock = threading.Lock()
        self.written = 0
        """Lines that were written."""
        self.lost = 0
        """Events that were not written, and will not be."""
        self._lost_told = 0
        self._lost_since_ms = 0

    def put(self, told: Told) -> None:
        """Hands the line over, or counts its events as lost. Never waits for the disk."""
        if self._waiting >= MOST_WAITING:
            self._lose(told)
            return
        with self._count_lock:
            self._waiting += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="cordwood-trail", daemon=True)
            self._thread.start()
        self._queue.put(told)

    def _lose(self, told: Told) -> None:
        with self._count_lock:
            if self.lost == self._lost_told:
                self._lost_since_ms = told.first_ms
            self.lost += told.times

    def close(self, timeout_s: float = LAST_LINES_S) -> None:
        """Writes what waits, within the time. What cannot be written then is lost, and said."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closing.set()
        self._queue.put(None)
        thread.join(timeout_s)
        if thread.is_alive():
            logger.error("the security trail %s is not complete: its disk does not answer", self._file.path)

    # In the thread

    def _run(self) -> None:
        more = True
        while more:
            batch, more = self._next()
            self._write(batch)
        self._file.close()

    def _next(self) -> tuple[list[Told], bool]:
        """The events that wait, and whether more will come."""
        batch: list[Told] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == _AT_ONCE:
                return batch, True
            try:
                item = self._queue.get_nowait()
            except Empty:
                return batch, True
        return batch, False

    def _write(self, batch: list[Told]) -> None:
        """Writes the lines of a batch, however long that takes, unless the broker stops."""
        lines = b"".join(line(told, self._broker_id) for told in batch)
        if batch and self._append(lines):
            self.written += len(batch)
        elif batch:
            for told in batch:
                self._lose(told)
            logger.error("the security trail %s lost %d events", self._file.path, self.lost - self._lost_told)
        with self._count_lock:
            self._waiting -= len(batch)
        self._tell_lost()

    def _tell_lost(self) -> None:
        with self._count_lock:
            lost, since_ms = self.lost - self._lost_told, self._lost_since_ms
        if not lost:
            return
        if self._append(line_of_lost(lost, since_ms, _now_ms(), self._broker_id)):
            self.written += 1
            with self._count_lock:
                self._lost_told += lost
            logger.error("the security trail %s lost %d events: it could not be written in time", self._file.path, lost)

    def _append(self, lines: bytes) -> bool:
        """True if the lines are written. Tries until the broker stops."""
        failed = False
        while True:
            try:
                self._file.append(lines)
            except OSError as error:
                if not failed:
                    failed = True
                    logger.error(
                        "the security trail cannot be written: %s: %s. The broker goes on; up to %d events wait for "
                        "the file, and further ones are lost",
                        self._file.path,
                        error.strerror or error,
                        MOST_WAITING,
                    )
                if self._closing.wait(self._retry_s):
                    return False
            else:
                if failed:
                    logger.info("the security trail %s is written again", self._file.path)
                return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

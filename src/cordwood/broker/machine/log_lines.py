"""The lines of the broker's own log: their destination and their form."""

import contextlib
import logging
import os
import queue
import re
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Final

from cordwood.model.errors import LogFileFailure

_STEERING: Final = re.compile("[\0-\x08\n-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that end a line, or steer the terminal that shows it; a tab does neither."""


class TextLines(logging.Formatter):
    """Lines for people. A message stays on one line: names in it come from peers, who could forge lines."""

    def __init__(self, broker_id: int | None = None) -> None:
        who = "" if broker_id is None else f"broker {broker_id}: "
        super().__init__(f"%(asctime)s %(levelname)-7s {who}%(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _STEERING.sub(lambda found: repr(found[0])[1:-1], record.message)
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """One JSON object per line, for machines that collect logs."""

    def __init__(self, broker_id: int | None = None) -> None:
        super().__init__()
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        import json  # here, since most brokers log text and every import delays the start

        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._broker_id is not None:
            line["broker"] = self._broker_id
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


MOST_LINES_WAITING: Final = 5_000
LAST_LINES_S: Final = 1.0
"""The wait of the process's end for lines that are not written yet."""


class DetachedLines(logging.Handler):
    """Writes lines to a descriptor, in a separate thread: an unread pipe must not stop the broker.

    Lines beyond MOST_LINES_WAITING are left out, and counted in one line once the pipe is read again.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._waiting: queue.Queue[str] = queue.Queue(MOST_LINES_WAITING)
        self._left_out = 0
        threading.Thread(target=self._write_all, name="log lines", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._waiting.put_nowait(self.format(record))
        except queue.Full:
            self._left_out += 1

    def flush(self) -> None:
        """Waits until all lines are written, for LAST_LINES_S at most. `logging` calls it at the end of the process."""
        deadline_s = time.monotonic() + LAST_LINES_S
        while self._waiting.unfinished_tasks and time.monotonic() < deadline_s:
            time.sleep(0.002)

    def _write_all(self) -> None:
        told_left_out = 0
        while True:
            line = self._waiting.get()
            self._write(line)
            if left_out := self._left_out - told_left_out:
                told_left_out += left_out
                self._write(self.format(_about_left_out(left_out)))
            self._waiting.task_done()

    def _write(self, line: str) -> None:
        left = (line + "\n").encode(errors="backslashreplace")
        # A reader that has gone away gets no lines. The broker goes on without it.
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(self._descriptor, left) :]


def _about_left_out(lines: int) -> logging.LogRecord:
    text = "%d log lines after the next ones are left out: whatever reads the log did not read in time"
    return logging.LogRecord("cordwood.broker", logging.WARNING, __file__, 0, text, (lines,), None)


def log_to(file_name: str, style: str, broker_id: int | None = None) -> None:
    """Sends the lines of all loggers to a file, or to stderr if no file is named; `style` is "text" or "json".

    `broker_id`: the broker that lines name, where several write to one place.
    Raises LogFileFailure if the file cannot be opened."""
    handler: logging.Handler
    if file_name:
        # Before each line the handler checks that the name still leads to its file, and opens the name again if not.
        from logging.handlers import WatchedFileHandler

        try:
            handler = WatchedFileHandler(file_name, encoding="utf-8")
        except OSError as error:
            path = os.path.abspath(file_name)
            raise LogFileFailure(f"the log file {path} cannot be written: {error.strerror or error}") from error
    else:
        handler = DetachedLines(sys.stderr.fileno())
    handler.setFormatter(JsonLines(broker_id) if style == "json" else TextLines(broker_id))
    logging.basicConfig(level=logging.INFO, handlers=[handler])

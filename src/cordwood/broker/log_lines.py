"""The lines of the broker's own log: where they go and how they look."""

import logging
import os
import sys
from datetime import UTC, datetime

from cordwood.model.errors import LogFileFailure


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
        return json.dumps(line, ensure_ascii=False)


def log_to(file_name: str, style: str, broker_id: int | None = None) -> None:
    """Sends the lines of all loggers to a file, or to stderr if no file is named; `style` is "text" or "json".

    `broker_id`: the broker that lines name, where several write to one place.
    Raises LogFileFailure if the file cannot be opened."""
    handler: logging.Handler
    if file_name:
        # Before each line the handler looks whether the name still leads to its file, and opens the name again if not.
        from logging.handlers import WatchedFileHandler

        try:
            handler = WatchedFileHandler(file_name, encoding="utf-8")
        except OSError as error:
            path = os.path.abspath(file_name)
            raise LogFileFailure(f"the log file {path} cannot be written: {error.strerror or error}") from error
    else:
        handler = logging.StreamHandler(sys.stderr)
    who = "" if broker_id is None else f"broker {broker_id}: "
    text = logging.Formatter(f"%(asctime)s %(levelname)-7s {who}%(message)s")
    handler.setFormatter(JsonLines(broker_id) if style == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])

"""Reports of failures in the broker's log: each text once in a while, so that a full disk does not fill the log as
well."""

import logging
from collections.abc import Callable

from cordwood.model.errors import EnvironmentFailure, SyncFailure
from cordwood.node.loop.loop import Loop

logger = logging.getLogger("cordwood")

REPEAT_AFTER_MS = 30_000
MAX_REMEMBERED_REPORTS = 256


class Reports:
    def __init__(
        self, loop: Loop, survived: Callable[[SyncFailure], bool], suspect: Callable[[Exception], None]
    ) -> None:
        """`survived` returns True if the broker goes on after a failed sync, without the data directory that failed.
        `suspect` is called with each failure: a data directory may have failed."""
        self._loop = loop
        self._survived = survived
        self._suspect = suspect
        self._reported: dict[str, int] = {}

    def report(self, level: int, message: str) -> None:
        """Logs a message, and repeats it only after REPEAT_AFTER_MS."""
        boot_ms = self._loop.now.boot_ms
        last_ms = self._reported.get(message)
        if last_ms is not None and boot_ms - last_ms < REPEAT_AFTER_MS:
            return
        if len(self._reported) >= MAX_REMEMBERED_REPORTS:
            self._reported.clear()
        self._reported[message] = boot_ms
        logger.log(level, message)

    def failure(self, failure: Exception) -> None:
        """Logs a failure of the environment, or, louder, one of our own."""
        self.report(logging.ERROR if isinstance(failure, EnvironmentFailure) else logging.CRITICAL, str(failure))
        self._suspect(failure)

    def failed_write(self, failure: Exception) -> None:
        """Handles a failed write that promises depend on: a failed sync of the home stops the broker, other failures
        are logged."""
        if isinstance(failure, SyncFailure) and not self._survived(failure):
            raise failure
        self.failure(failure)

"""The pace of a replay: at most so many rows a second, so that producers and other readers keep their brokers.

A batch reads as fast as it can, so a pace needs small batches. Each has the rows of `BATCH_S` at most, and begins when
those of the batch before have had their time.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from cordwood.pipelines.definition.definition import Pipeline

BATCH_S: Final = 2.0


class Pace:
    def __init__(self, rows_per_second: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """None: as fast as it goes."""
        self._rows_per_second = rows_per_second
        self._clock = clock
        self._began_s = self._due_s = 0.0

    def with_small_batches(self, pipeline: Pipeline) -> Pipeline:
        if self._rows_per_second is None:
            return pipeline
        rows = min(pipeline.settings.max_rows_per_batch, max(1, int(self._rows_per_second * BATCH_S)))
        return replace(pipeline, settings=replace(pipeline.settings, max_rows_per_batch=rows))

    def wait(self, ended: threading.Event) -> None:
        """Returns when the next batch is due, or the run is to end."""
        if self._due_s > self._clock():
            ended.wait(self._due_s - self._clock())
        self._began_s = self._clock()

    def has_read(self, rows: int | None) -> None:
        """Notes the rows of the batch that began at the end of `wait`; None: unknown, so it counts as a full one."""
        if self._rows_per_second is not None:
            self._due_s = self._began_s + (BATCH_S if rows is None else rows / self._rows_per_second)

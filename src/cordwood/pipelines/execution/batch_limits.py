"""The limits of a batch: its deadline, and the memory of the Python processes that it uses.

A batch that is over its deadline has its jobs cancelled, by which Spark kills their Python workers. A Python process
that takes too much memory is killed by the supervisor (`python_memory.py`), and the batch is told why it failed.
"""

import time
from collections.abc import Callable
from typing import Final

from cordwood.model.quantities import duration_in_words
from cordwood.pipelines.definition.errors import BatchOverdue, BatchStuck, OverMemory
from cordwood.pipelines.execution.python_memory import KilledPython

_BETWEEN_CANCELS_S: Final = 1.0
_CANCEL_S: Final = 30.0
"""How long after its deadline a batch may take to end once its jobs are cancelled."""


class BatchLimits:
    def __init__(self, deadline_ms: int, killed: KilledPython | None) -> None:
        """`killed`: the processes that a supervisor has killed; None without a supervisor."""
        self.overdue: BatchOverdue | None = None
        self._deadline_ms = deadline_ms
        self._killed = killed
        self._under_way: tuple[int, float] | None = None
        """The batch under way, and when it began."""
        self._cancelled_s = 0.0

    def begun(self, batch_id: int) -> None:
        self.overdue = None
        self._under_way = batch_id, time.monotonic()

    def ended(self) -> None:
        self._under_way = None

    def check_deadline(self, cancel: Callable[[], None]) -> None:
        """Calls `cancel` for the jobs of a batch that takes too long. Raises BatchStuck."""
        under_way = self._under_way
        if under_way is None:
            return
        batch_id, began_s = under_way
        now_s = time.monotonic()
        over_s = now_s - began_s - self._deadline_ms / 1000
        if over_s < 0 or now_s - self._cancelled_s < _BETWEEN_CANCELS_S:
            return
        self._cancelled_s = now_s
        within = f"batch {batch_id} has not ended within {duration_in_words(self._deadline_ms)}"
        self.overdue = BatchOverdue(f"{within}: its jobs were cancelled and their Python workers killed")
        # Later jobs are cancelled at the next look.
        cancel()
        if over_s > _CANCEL_S:
            raise BatchStuck(f"{within}, nor after its jobs were cancelled: its function does not come back")

    def check_memory(self, failure: BaseException) -> None:
        """Raises OverMemory if the failure follows from the kill of a process that had taken too much."""
        if self._killed is not None:
            self._killed.check(failure)

    def explained(self, failure: BaseException) -> BaseException:
        """The failure, or the one that it follows from."""
        try:
            self.check_memory(failure)
        except OverMemory as cause:
            return cause
        return failure

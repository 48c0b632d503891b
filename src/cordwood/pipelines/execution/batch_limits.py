"""The limits of a batch: its deadline, and the memory of the Python processes that it uses.

A batch that is over its deadline has its jobs cancelled, by which Spark kills their Python workers. Time in which none
of its tasks has a core counts a tenth: a batch is not to blame for cores that another pipeline's tasks do not give
back. A Python process that takes too much memory is killed by the supervisor (`python_memory.py`), and the batch is
told why it failed.
"""

import time
from collections.abc import Callable
from typing import Final

from cordwood.model.quantities import duration_in_words
from cordwood.pipelines.definition.errors import BatchOverdue, BatchStuck, OverMemory
from cordwood.pipelines.execution.python_memory import KilledPython

_LOOK_S: Final = 1.0
"""How often a batch is looked at, and an overdue one's jobs are cancelled again."""
_WAITING_COUNTS: Final = 0.1
_CANCEL_S: Final = 30.0
"""How long after its deadline a batch may take to end once its jobs are cancelled."""


class BatchLimits:
    def __init__(
        self, deadline_ms: int, killed: KilledPython | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`killed`: the processes that a supervisor has killed; None without a supervisor."""
        self.overdue: BatchOverdue | None = None
        self._deadline_ms = deadline_ms
        self._killed = killed
        self._clock = clock
        self._batch: int | None = None
        """The batch under way."""
        self._looked_s = 0.0
        self._spent_s = 0.0
        """The time of the batch that counts."""
        self._overdue_since_s = 0.0

    def begun(self, batch_id: int) -> None:
        self.overdue = None
        self._spent_s = 0.0
        self._looked_s = self._clock()
        self._batch = batch_id

    def ended(self) -> None:
        self._batch = None

    def check_deadline(self, cancel: Callable[[], None], waits_for_cores: Callable[[], bool]) -> None:
        """Calls `cancel` for the jobs of a batch that takes too long. Raises BatchStuck. `waits_for_cores`: none of the
        tasks that the batch has to run has a core."""
        batch_id, now_s = self._batch, self._clock()
        if batch_id is None or now_s - self._looked_s < _LOOK_S:
            return
        within = f"batch {batch_id} has not ended within {duration_in_words(self._deadline_ms)}"
        if self.overdue is None:
            since_s, self._looked_s = now_s - self._looked_s, now_s
            self._spent_s += since_s * (_WAITING_COUNTS if waits_for_cores() else 1.0)
            if self._spent_s < self._deadline_ms / 1000:
                return
            self._overdue_since_s = now_s
            self.overdue = BatchOverdue(f"{within}: its jobs were cancelled and their Python workers killed")
        # Later jobs are cancelled at the next look.
        self._looked_s = now_s
        cancel()
        if now_s - self._overdue_since_s > _CANCEL_S:
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

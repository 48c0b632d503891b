"""The steps of a write, by name: the moments between which a process may die.

Tests watch the steps, to kill a process between any two of them. Unwatched, a step costs a look at an empty list.
Tables have steps of their own (`cordwood.pipelines.tables.steps`).
"""

from collections.abc import Callable
from enum import Enum


class Step(Enum):
    """The steps of a task, then those of the driver, each in the order of a write."""

    TASK_STARTED = "task-started"
    """The task has rows."""
    TASK_JOINED = "task-joined"
    """The task has a slot, or whatever its guarantee needs."""
    TASK_PRODUCED = "task-produced"
    """A block of rows is on its way."""
    TASK_FLUSHED = "task-flushed"
    """Every row is acknowledged."""
    TASK_COMPLETED = "task-completed"
    DRIVER_DECIDING = "driver-deciding"
    DRIVER_SYNCED = "driver-synced"
    """The checkpoint survives a power cut."""
    DRIVER_DECIDED = "driver-decided"
    DRIVER_ABORTING = "driver-aborting"
    DRIVER_ABORTED = "driver-aborted"


_watchers: list[Callable[[Enum], None]] = []


def watch(watcher: Callable[[Enum], None]) -> None:
    """Calls `watcher` at every step of this process from now on, in the thread that reaches it."""
    _watchers.append(watcher)


def reached(step: Enum) -> None:
    for watcher in _watchers:
        watcher(step)

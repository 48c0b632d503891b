"""The steps of a batch on its way into tables of files: the moments between which a process may die.

Tests watch them as they watch the steps of the sink (`cordwood.spark.sink.steps`).
"""

from enum import Enum


class TableStep(Enum):
    """The step of a task, then those of the driver, in the order of a write."""

    FILES_WRITTEN = "table-files-written"
    """A task's files are whole, and the driver does not know them."""
    MADE = "table-made"
    """The table was made, and is neither synced nor as readers want it."""
    STAGED = "table-staged"
    """The driver knows all files of the batch."""
    ENTERED = "table-entered"
    """The table's log has the batch. Its entry is not synced, and readers without the catalog do not see it."""
    COMMITTED = "table-committed"

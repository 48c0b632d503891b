"""Exactly once, as values and pure decisions: the reports of tasks, and the driver's decision on them.

The whole protocol, which docs/decisions/spark-exactly-once.md argues for:

    task    join the family for this batch            -> a slot of its own, or "that batch is decided"
            decided: take the input to its end, write nothing
            else: produce in the slot's transaction, wait for every acknowledgement, report the slot
    driver  commit: one decision naming the slots of the tasks that Spark counts   -> all of them, and nobody else
            abort: one decision that ends whatever the family has open

Nothing here does I/O, so the checker in tests/spark explores the same functions in every order of events.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from cordwood.client.answers import ProducerIdentity
from cordwood.spark.sink.options import Guarantee, OlderBatches, UnknownQuery

NO_BATCH = -1
"""The last decided batch of a family that never decided."""
NO_TOPIC = "does not exist, and did not come to be within"
"""In the failure of a task whose topic is gone. Spark passes a task's failure on as text."""


class SinkFailure(Exception):
    """A write did not happen; the message says why and what to do."""


class OlderBatch(SinkFailure):
    """The batch precedes the last decided one: the checkpoint went back, or is a copy."""


class UnknownFamily(SinkFailure):
    """The batch is not the first, and the family remembers none."""


class Slot(NamedTuple):
    """One transaction, opened by one attempt of one task."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """The report of a task's attempt to the driver, when all its rows are acknowledged."""

    guarantee: Guarantee
    """The guarantee that the broker allowed."""
    family: str
    batch_id: int
    task: int
    attempt: int
    slot: Slot | None
    """None if the attempt had no rows, did not have to write them, or wrote without a transaction."""
    rows: int = 0
    bytes: int = 0
    skipped_rows: int = 0
    """Rows of a batch that was decided before: read and not written."""
    query_name: str | None = None
    """The streaming query's name, if it has one: for people who look at its family."""
    input_ms: int = 0
    """How long the attempt waited for Spark's rows."""
    write_ms: int = 0
    """The rest of its time: encoding, sending, waiting for acknowledgements."""


class Verdict(Enum):
    WRITE = "write"
    SKIP = "skip"


def judge(family: str, batch_id: int, last_batch_id: int, older: OlderBatches) -> Verdict:
    """Decides whether a task of this batch writes, given the last batch that its family decided. Raises OlderBatch."""
    if batch_id > last_batch_id:
        return Verdict.WRITE
    if batch_id < last_batch_id and older is OlderBatches.FAIL:
        raise OlderBatch(
            f"Batch {batch_id} of '{family}' is older than batch {last_batch_id}, which is written already. Spark "
            "repeats only the last batch, so this is an old checkpoint or a copy of one that another query uses, "
            "and its batches need not hold what theirs held. To write everything again use a new checkpoint; to "
            f"pass over all batches up to {last_batch_id} set the option 'olderBatches' to 'skip'"
        )
    return Verdict.SKIP


def check_known(family: str, batch_id: int, last_batch_id: int, unknown: UnknownQuery) -> None:
    """Refuses a batch after the first if the family remembers none: every micro-batch of a query is decided, also one
    without rows, so its first is batch 0. Raises UnknownFamily."""
    if last_batch_id != NO_BATCH or batch_id == 0 or unknown is UnknownQuery.BEGIN:
        return
    raise UnknownFamily(
        f"Batch {batch_id} is not the first of query '{family}', and the broker remembers none of it. Either its "
        "checkpoint lost the file 'metadata' and Spark gave it a new id, or it is another broker, or one that lost "
        "its memory: batches could be written twice. A checkpoint on this machine is mended by `cordwood spark "
        "repair-checkpoint`. If the query has written elsewhere until now and is to go on here, set the option "
        "'unknownQuery' to 'begin'"
    )


@dataclass(frozen=True)
class Decision:
    """The driver's request to the coordinator: commit these slots, and abort every other of the family."""

    family: str
    batch_id: int
    winners: tuple[Slot, ...]


def decision_of(reports: Sequence[TaskReport | None], batch_id: int) -> Decision | None:
    """The decision that makes a batch visible. None if no task reported: then nothing was written."""
    found = [report for report in reports if report is not None]
    if not found:
        return None
    families = {report.family for report in found}
    batches = {report.batch_id for report in found}
    assert len(families) == 1, f"one write, several families: {sorted(families)}"
    assert batches == {batch_id}, f"batch {batch_id} was given the reports of {sorted(batches)}"
    winners = tuple(report.slot for report in found if report.slot is not None)
    # Two winners may name one slot: the first of them timed out, and the coordinator refuses its epoch.
    return Decision(found[0].family, batch_id, winners)


@dataclass(frozen=True)
class Written:
    """Sums over a batch, for the log."""

    rows: int
    bytes: int
    skipped_rows: int
    tasks: int


def sums_of(reports: Iterable[TaskReport | None]) -> Written:
    found = [report for report in reports if report is not None]
    return Written(
        sum(report.rows for report in found),
        sum(report.bytes for report in found),
        sum(report.skipped_rows for report in found),
        len(found),
    )

"""A write with a postponed decision: rows go into open transactions now, and become visible later, or never.

    staged = stage_records(rows, {"kafka.bootstrap.servers": …, "topic": …, "family": …, "batchId": "7"})
    staged.commit()         # or staged.discard()

Staging serves a driver that writes one batch to several places and decides once all of them have it. The write is one
job of Spark: the tasks hand their reports to the driver as rows, while `df.write` would start two more processes, to
plan and to commit. Until the decision the driver keeps the family alive, as tasks do while they write.
"""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cordwood.spark.sink.columns import check_columns
from cordwood.spark.sink.options import Guarantee, SinkOptions, parse_sink_options
from cordwood.spark.sink.protocol import TaskReport, sums_of
from cordwood.spark.sink.writer import options_for_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REPORT: Final = "report"


@dataclass
class StagedRecords:
    """Records that are written and not decided. One of `commit` and `discard` is called, once."""

    options: SinkOptions
    reports: Sequence[TaskReport]
    frame: "DataFrame"
    """The executed DataFrame, for those who examine its plan."""
    _kept_alive: ExitStack = field(default_factory=ExitStack)

    @property
    def rows(self) -> int:
        """The number of rows, also of those that were skipped because the family decided the batch before."""
        sums = sums_of(self.reports)
        return sums.rows + sums.skipped_rows

    @property
    def input_ms(self) -> int:
        """The longest wait of a task for its rows: reading, decoding and the function."""
        return max((report.input_ms for report in self.reports), default=0)

    @property
    def write_ms(self) -> int:
        """The longest write of a task: encoding, sending, waiting for acknowledgements."""
        return max((report.write_ms for report in self.reports), default=0)

    def commit(self) -> None:
        """Returns once all rows are visible to readers of committed records. Raises SinkFailure if they will not be."""
        from cordwood.spark.sink.commits import commit_batch

        with self._kept_alive:
            if self.rows:
                assert self.options.batch_id is not None
                try:
                    commit_batch(self.options, self.reports, self.options.batch_id, forget=False)
                except BaseException:
                    # The abort has no effect if the decision was made and its answer got lost.
                    _abort(self.options, self.reports)
                    raise

    def discard(self) -> None:
        """Takes all rows back if the broker can be reached. A timeout ends what is left open."""
        with self._kept_alive:
            if self.rows:
                _abort(self.options, self.reports)


def stage_records(rows: "DataFrame", options: Mapping[str, str]) -> StagedRecords:
    """Writes rows and leaves them undecided. `options` are those of a batch write with `family` and `batchId`. After
    any failure nothing is left open."""
    parsed = parse_sink_options(options, streaming=False)
    assert parsed.batch_id is not None, "a write that is decided later has a number"
    assert parsed.guarantee is Guarantee.MICRO_BATCH, "only families are decided later"
    columns = check_columns(rows.schema, parsed)
    family, batch_id = parsed.family, parsed.batch_id
    assert family is not None

    for_tasks = options_for_tasks(parsed)

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        from cordwood.spark.sink.promises import WriteIdentity
        from cordwood.spark.sink.task import write_task

        context = TaskContext.get()
        assert context is not None
        identity = WriteIdentity(family, batch_id, context.partitionId(), context.attemptNumber(), repeatable=True)
        report = write_task(for_tasks, columns, identity, batches)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)], pa.binary())], names=[_REPORT])

    frame = rows.mapInArrow(write, f"{_REPORT} binary")
    try:
        reports = [pickle.loads(row[_REPORT]) for row in frame.collect()]
    except BaseException:
        _abort(parsed, ())
        raise
    staged = StagedRecords(parsed, reports, frame)
    staged._kept_alive.enter_context(_renewer(parsed))
    return staged


def _abort(options: SinkOptions, reports: Sequence[TaskReport]) -> None:
    from cordwood.spark.sink.commits import abort_batch

    assert options.batch_id is not None
    abort_batch(options, reports, options.batch_id, forget=False, family=options.family)


def _renewer(options: SinkOptions) -> Any:
    from cordwood.spark.sink.families import Renewer
    from cordwood.spark.sink.promises import transaction_timeout_ms

    assert options.family is not None
    assert options.batch_id is not None
    timeout_ms = transaction_timeout_ms(options, Guarantee.MICRO_BATCH)
    return Renewer(options.client, options.family, options.batch_id, timeout_ms)

"""The list of all metrics of pipelines, which the process that supervises them exposes."""

from cordwood.metrics.names import Kind, Metric

_EDITION = ("pipeline", "edition")
_PARTITION = (*_EDITION, "topic", "partition")


def _counter(name: str, meaning: str, labels: tuple[str, ...] = _EDITION) -> Metric:
    return Metric(f"cordwood_pipeline_{name}_total", Kind.COUNTER, meaning, labels)


def _gauge(name: str, meaning: str, labels: tuple[str, ...] = _EDITION) -> Metric:
    return Metric(f"cordwood_pipeline_{name}", Kind.GAUGE, meaning, labels)


RUNNING = _gauge(
    "running",
    "1 while the query of an edition runs; 0 while it waits after a failure, or has ended. Absent before its first "
    "start.",
    (*_EDITION, "version"),
)
FAILED = _gauge("failed", "1 from a failure to the next finished batch, else 0.")
FAILURES = _counter("failures", "Failures that ended the query.")
RESTARTS = _counter("restarts", "Tries again after a failure.")

BATCHES = _counter("batches", "Batches that are done.")
ROWS_IN = _counter("rows_in", "Records that batches have read.")
ROWS_OUT = _counter("rows_out", "Rows that batches have written, by output.", (*_EDITION, "output"))
QUARANTINED = _counter("quarantined", "Records that batches have set aside.")
TOO_LATE = _counter(
    "rows_too_late",
    "Rows that stateful functions left out because they came after the watermark, as Spark counts them.",
)
RULE_ROWS = _counter(
    "expectation_rows",
    "Rows that broke an expectation, by rule and by what became of them: quarantined or dropped.",
    (*_EDITION, "rule", "outcome"),
)
BATCH_DURATION = Metric(
    "cordwood_pipeline_batch_duration_seconds", Kind.HISTOGRAM, "How long a batch took, without Spark's part.", _EDITION
)
LAST_BATCH_DURATION = _gauge("last_batch_duration_seconds", "How long the last batch took. Absent before the first.")
LAST_BATCH_AT = _gauge(
    "last_batch_timestamp_seconds",
    "When the last batch was done, as a Unix time. Absent before the first. No batch is made while there is nothing to "
    "read.",
)

WATCHED = _gauge(
    "inputs_watched",
    "1 if the brokers told the ends of the inputs at the last look, 0 if they did not: then the four metrics below are "
    "absent. Absent itself before the first batch.",
)
LAG = _gauge("lag_records", "Committed records of an input that are not read, now, counted in offsets.", _PARTITION)
LAG_SECONDS = _gauge(
    "lag_seconds",
    "How long the oldest unread record of an input has been waiting; 0 if all are read. Absent where the time is "
    "unknown.",
    _PARTITION,
)
TIME_TO_LOSS = _gauge(
    "time_to_data_loss_seconds",
    "The time until retention may remove a record of an input that is not read, if the log grows and the pipeline "
    "reads as in the last minute; +Inf: never. Absent where it is unknown.",
    _PARTITION,
)
LOST = _gauge(
    "lost_records", "Records of an input that retention removed before they were read, counted in offsets.", _PARTITION
)

PIPELINE_METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

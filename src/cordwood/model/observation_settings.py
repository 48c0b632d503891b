"""The settings of an operator's view: lag, metrics, health and the lines of the broker's own log."""

from dataclasses import dataclass

from cordwood.model.listeners import check_metrics_address
from cordwood.model.settings import boolean, int64, string


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ObservationSettings:
    """Lag, metrics, health, log lines."""

    lag_check_interval_ms: int = int64(
        5000,
        "How often the positions of groups are compared with their logs: for metrics, and to warn before a loss.",
        low=100,
    )
    lag_warning_ms: int = int64(
        3_600_000,
        "A group that will lose records to retention within this time, at the current rates, is named in "
        "the broker's log; within half of the topic's retention.ms if that is less. 0 warns of nothing but "
        "losses.",
        low=0,
    )
    logging_file: str = string(
        "",
        "The file to which the broker appends its log lines, instead of stderr. A file that was renamed or deleted is "
        "made anew at the next line, so that `logrotate` needs neither a signal nor `copytruncate`. For `cordwood "
        "serve`; an embedded broker logs as its program says.",
    )
    logging_format: str = string(
        "text",
        "How log lines look. `json`: one object per line, with time, level, logger, message and, for failures, the "
        "traceback. For `cordwood serve`.",
        choices=("text", "json"),
    )
    metrics_hot_keys: bool = boolean(
        False,
        "Whether metrics name the most frequent keys of partitions that get far more than their share of "
        "traffic. Off by default: keys are data, and the metrics' address has no passwords.",
    )
    metrics_listener: str = string(
        "",
        "The address at which metrics and health are to be had over HTTP: host:port, such as 127.0.0.1:9404. "
        "`/metrics` is for Prometheus; `/live` answers 200 while the broker runs; `/ready` answers 200 while it takes "
        "clients, else 503 and the reason. Empty: nowhere.",
        check=check_metrics_address,
    )

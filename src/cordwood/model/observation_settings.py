"""The settings of an operator's view: lag and metrics."""

from dataclasses import dataclass

from cordwood.model.listeners import check_metrics_address
from cordwood.model.settings import boolean, int64, string


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ObservationSettings:
    """Lag and metrics."""

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
    metrics_hot_keys: bool = boolean(
        False,
        "Whether metrics name the most frequent keys of partitions that get far more than their share of "
        "traffic. Off by default: keys are data, and the metrics' address has no passwords.",
    )
    metrics_listener: str = string(
        "",
        "The address at which metrics are to be had over HTTP, for Prometheus: host:port, such as "
        "127.0.0.1:9404. Empty: nowhere.",
        check=check_metrics_address,
    )

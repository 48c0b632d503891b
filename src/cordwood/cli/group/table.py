"""A group's positions as a table for people."""

from collections.abc import Sequence

from cordwood.administration.group.lag import LagRow
from cordwood.lag.position import Standing
from cordwood.model.quantities import duration_in_words

COLUMNS = ["topic", "partition", "committed", "end", "lag", "behind", "drain/s", "data loss", "member"]


def cells(row: LagRow) -> Sequence[object]:
    position, lag = row.position, row.lag
    return [
        position.topic,
        position.partition,
        position.committed,
        position.end,
        position.lag if lag is None else lag.lag_records,
        None if lag is None or lag.lag_ms is None else duration_in_words(lag.lag_ms),
        None if lag is None or lag.drain_per_s is None else f"{lag.drain_per_s:,.1f}",
        loss_in_words(row),
        position.member_id,
    ]


def loss_in_words(row: LagRow) -> str:
    """The time to data loss: `never`, `in 3.5 h`, `is due`, `unknown`; records that are lost already come first."""
    lag = row.lag
    if lag is None:
        return "topic is gone"
    if lag.standing is Standing.NEVER_COMMITTED:
        return "never committed"
    if lag.standing is Standing.AHEAD:
        return "position after the end"
    if not row.foreseen:
        words = "unknown"
    elif lag.time_to_data_loss_ms is None:
        words = "never"
    elif lag.time_to_data_loss_ms < 1:
        words = "is due"
    else:
        words = f"in {duration_in_words(lag.time_to_data_loss_ms)}"
    return f"{lag.lost_records} lost, more: {words}" if lag.lost_records else words

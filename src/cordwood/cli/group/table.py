"""A group's positions as a table for people."""

from collections.abc import Sequence

from cordwood.administration.group.lag import LagRow
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
        row.loss_in_words,
        position.member_id,
    ]

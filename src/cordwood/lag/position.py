"""Evaluates one group's position in one partition: lag, drain rate, time to data loss."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from cordwood.lag.arrival import Mark, arrival_ms
from cordwood.lag.data_loss import Growth, LogSpan, time_to_data_loss_ms


class Standing(Enum):
    NEVER_COMMITTED = "never committed"
    """No position: the clients choose where the group begins (auto.offset.reset), which a broker does not know."""
    CAUGHT_UP = "caught up"
    BEHIND = "behind"
    OVERTAKEN = "overtaken"
    """Records after the position were removed before the group had read them."""
    AHEAD = "ahead"
    """The position is after the log's end: the log was cut, or the topic made anew."""


class PositionLag(NamedTuple):
    standing: Standing
    position: int | None
    lag_records: int | None
    """Offsets between the position and the end, without removed records; None without a position. More than the number
    of records where compaction or transaction markers left gaps."""
    lost_records: int
    """Records removed between the position and the log's start, counted in offsets."""
    unread_at_most: int
    """The lag; without a position, all records of the log."""
    lag_ms: int | None
    """How long the oldest unread record has been waiting; 0 if there is none, None if its time is unknown."""
    drain_per_s: float | None
    """Records a second by which the position moves. None until there are two samples."""
    time_to_data_loss_ms: float | None
    """The time until an unread record may be removed; None: never at the current rates, or no position."""


def evaluate(
    log: LogSpan,
    position: int | None,
    *,
    marks: Iterable[Mark],
    growth: Growth,
    drain_per_s: float | None,
    wall_ms: int,
) -> PositionLag:
    start, end = log.start_offset, log.end_offset
    if position is None:
        return PositionLag(Standing.NEVER_COMMITTED, None, None, 0, end - start, None, None, None)
    first_unread = max(position, start)
    lag = max(end - first_unread, 0)
    if position < start:
        standing = Standing.OVERTAKEN
    elif position > end:
        standing = Standing.AHEAD
    else:
        standing = Standing.BEHIND if lag else Standing.CAUGHT_UP
    lag_ms: int | None = 0
    if lag:
        # A client's timestamp in the future says nothing about when its record came.
        came_ms = arrival_ms(first_unread, [mark for mark in marks if mark.at_ms <= wall_ms])
        lag_ms = None if came_ms is None else max(wall_ms - came_ms, 0)
    loss_ms = None
    if standing is not Standing.AHEAD:
        loss_ms = time_to_data_loss_ms(
            log, position, growth=growth, drained_per_ms=(drain_per_s or 0.0) / 1000, wall_ms=wall_ms
        )
    return PositionLag(standing, position, lag, max(start - position, 0), lag, lag_ms, drain_per_s, loss_ms)

"""The pace of a replay: small batches, each of which begins when the one before has had its time."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from cordwood.pipelines import pipeline, topic
from cordwood.pipelines.execution.pacing import BATCH_S, Pace


class Clock(threading.Event):
    """A clock that waits forward, and the event that would end a wait."""

    now_s = 100.0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        if not self.is_set():
            self.now_s += timeout
        return self.is_set()


@pipeline(version=1, inputs=topic("orders"), outputs=topic("copies"))
def copied(orders: Any) -> Any:
    return orders


@pytest.mark.parametrize(("rate", "own", "most"), [(None, 500_000, 500_000), (1_000, 500_000, 2_000), (1_000, 10, 10)])
def test_a_batch_has_the_rows_of_its_time(rate: int | None, own: int, most: int) -> None:
    whole = replace(copied, settings=replace(copied.settings, max_rows_per_batch=own))
    assert Pace(rate).with_small_batches(whole).settings.max_rows_per_batch == most


def test_each_batch_begins_when_the_rows_before_have_had_their_time() -> None:
    clock = Clock()
    pace = Pace(100, lambda: clock.now_s)
    began = []
    for rows in (200, 50, None, 200):
        pace.wait(clock)
        began.append(clock.now_s)
        clock.now_s += 0.3  # the batch itself
        pace.has_read(rows)
    assert began == [100.0, 102.0, 102.5, pytest.approx(102.5 + BATCH_S)]


def test_a_slow_batch_is_followed_at_once_and_a_stop_waits_for_nothing() -> None:
    clock = Clock()
    pace = Pace(100, lambda: clock.now_s)
    pace.wait(clock)
    clock.now_s += 60
    pace.has_read(200)
    pace.wait(clock)
    assert clock.now_s == 160
    pace.has_read(200)
    clock.set()
    pace.wait(clock)
    assert clock.now_s == 160


def test_without_a_pace_nothing_waits() -> None:
    clock = Clock()
    pace = Pace(None, lambda: clock.now_s)
    for _ in range(3):
        pace.wait(clock)
        pace.has_read(1_000_000)
    assert clock.now_s == 100

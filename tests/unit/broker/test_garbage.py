"""Looks for cyclic garbage are small, but for those that are taken while the loop has nothing to do."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from cordwood.broker.machine import garbage
from cordwood.broker.machine.garbage import (
    LONGEST_S,
    NEVER,
    WORTH_A_LOOK,
    YOUNG,
    YOUNG_LOOKS,
    QuietCollection,
    collect_seldom,
)

MOST_OBJECTS_IN_A_LOOK = 50_000
"""At 0.1 to 0.2 us each: 5 to 10 ms, and some times that on a busy machine."""


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), 20))


class Process:
    """What the collection is told of the process that it is in."""

    def __init__(self, looks: int, cpu_s_per_question: float) -> None:
        self.looks = looks
        self.collected = 0
        self.thorough = 0
        self._cpu_s = 0.0
        self._step_s = cpu_s_per_question
        self._asked = 0
        self.asked_often = asyncio.Event()

    def cpu_s(self) -> float:
        self._cpu_s += self._step_s
        self._asked += 1
        if self._asked == 20:
            self.asked_often.set()
        return self._cpu_s

    def collect(self, thorough: bool) -> None:
        self.collected += 1
        self.thorough += thorough
        self.looks = 0


async def watched(process: Process, longest_s: float = LONGEST_S) -> None:
    watching = QuietCollection(
        asyncio.get_running_loop(),
        collect=process.collect,
        looks=lambda: process.looks,
        cpu_s=process.cpu_s,
        interval_s=0.001,
        longest_s=longest_s,
    )
    await process.asked_often.wait()
    watching.close()


def test_the_looks_that_come_by_themselves_pass_few_objects() -> None:
    assert YOUNG * (YOUNG_LOOKS + 1) <= MOST_OBJECTS_IN_A_LOOK


def test_a_quiet_process_looks_at_everything_once() -> None:
    process = Process(looks=WORTH_A_LOOK, cpu_s_per_question=0.0)
    on_a_loop(lambda: watched(process))
    assert process.collected == 1


def test_a_process_with_little_new_does_not_look() -> None:
    process = Process(looks=WORTH_A_LOOK - 1, cpu_s_per_question=0.0)
    on_a_loop(lambda: watched(process))
    assert process.collected == 0


def test_a_busy_process_does_not_look() -> None:
    process = Process(looks=WORTH_A_LOOK, cpu_s_per_question=0.001)
    on_a_loop(lambda: watched(process))
    assert process.collected == 0


def test_a_process_that_is_never_quiet_looks_once_in_a_long_time() -> None:
    process = Process(looks=WORTH_A_LOOK, cpu_s_per_question=0.001)
    on_a_loop(lambda: watched(process, longest_s=0.008))
    assert process.collected == 1


def test_a_process_that_is_never_quiet_looks_in_a_less_busy_moment() -> None:
    process = Process(looks=WORTH_A_LOOK, cpu_s_per_question=0.0003)
    on_a_loop(lambda: watched(process, longest_s=0.016))
    assert process.collected == 1


def test_what_outlived_a_look_is_looked_at_again_after_a_long_time() -> None:
    for longest_s, thorough in ((1.0, 0), (0.001, 1)):
        process = Process(looks=WORTH_A_LOOK, cpu_s_per_question=0.0)
        on_a_loop(lambda process=process, longest_s=longest_s: watched(process, longest_s))  # type: ignore[misc]
        assert (process.collected, process.thorough) == (1, thorough)


def test_what_outlived_a_look_is_set_apart() -> None:
    """A look at all objects of a broker with a thousand partitions took 120 ms, once in some seconds."""
    frozen = gc.get_freeze_count()
    kept = [[number] for number in range(1000)]
    try:
        garbage._collect(thorough=False)
        assert gc.get_freeze_count() >= frozen + len(kept)
        garbage._collect(thorough=True)
        assert gc.get_freeze_count() >= len(kept)
    finally:
        gc.unfreeze()


def test_what_has_survived_is_counted_in_looks() -> None:
    gc.collect()
    assert gc.get_count()[2] == 0
    gc.collect(1)
    assert gc.get_count()[2] == 1


def test_a_process_that_has_started_collects_by_these_bounds() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()

    async def started() -> None:
        collect_seldom(asyncio.get_running_loop()).close()
        assert gc.isenabled()
        assert gc.get_threshold() == (YOUNG, YOUNG_LOOKS, NEVER)
        assert gc.get_freeze_count() > frozen

    try:
        on_a_loop(started)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()

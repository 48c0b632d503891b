"""Lines of Python that run in a turn of the loop, counted by the interpreter itself: the unit of work of tests that no
clock decides. A line takes some 50 to 100 ns."""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

from simulation.world import exchange
from simulation.world.world import World


class Lines:
    """Counts the lines of our own code, and of what it generates, that run while it is in force.

    Not those of the simulator's network, which reads answers as a client does.
    """

    def __init__(self, *, everywhere: bool = False) -> None:
        """`everywhere`: the lines of Python's own library count as well."""
        self.count = 0
        self._everywhere = everywhere
        self._of_others = 0

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if self._of_others:
            return None
        if name == exchange.__file__ and frame.f_code.co_name in ("send", "encode_request"):
            self._of_others += 1
            return self._other
        return self._line if self._everywhere or name.startswith("<") or "/cordwood/" in name else None

    def _other(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":
            self._of_others -= 1
        return self._other

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += 1
        return self._line

    def of(self, work: Callable[[], object]) -> int:
        """How many lines ran."""
        self.count = 0
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(before)
        return self.count


class Work(NamedTuple):
    """Lines that ran."""

    busiest_turn: int
    total: int


def busiest_turn(world: World, within_ms: int = 0) -> int:
    """The most lines of any turn, as `work_of` counts."""
    return work_of(world, within_ms).busiest_turn


def work_of(world: World, within_ms: int = 0, *, everywhere: bool = False) -> Work:
    """Lets everything happen that can happen now or within so many milliseconds, and counts its lines. Reading answers
    is not counted, nor is work in threads."""
    lines, most, total = Lines(everywhere=everywhere), 0, 0
    end_ms = world.clock.boot_ms + within_ms
    while True:
        while steps := world.steps():
            name, step = steps[0]
            work = partial(world.do, step)
            if name in ("answer", "do work") or name.startswith("sync "):
                work()
            else:
                total += lines.of(work)
                most = max(most, lines.count)
        assert world.life is not None
        deadline_ms = world.life.loop.next_deadline_ms
        if deadline_ms is None or deadline_ms > end_ms:
            return Work(most, total)
        world.clock.advance(max(0, deadline_ms - world.clock.boot_ms))

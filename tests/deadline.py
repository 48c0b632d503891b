"""Waiting in tests: ask again until it is so, or fail with what was seen last. Never a sleep that hopes.

One bound for all waits: what comes true at all does so in this time, however busy the machine, and the time limit of a
test is longer. A test that wants to know how long something takes measures it.
"""

import asyncio
import time
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

T = TypeVar("T")

WITHIN_S = 240.0
"""For a thread or another process; for a whole test whose loop may wait, there is `TEST_WITHIN_S`."""
TEST_WITHIN_S = WITHIN_S + 30
POLL_INTERVAL_S = 0.02
_LOOP_POLL_INTERVAL_S = 0.001
_SHOWN = 3000


class _Wanted(Enum):
    ANYTHING_TRUE = 0


_TRUE = _Wanted.ANYTHING_TRUE


def eventually(
    ask: Callable[[], T],
    *,
    to_be: object = _TRUE,
    what: str = "it",
    within_s: float = WITHIN_S,
    every_s: float = POLL_INTERVAL_S,
) -> T:
    """The first answer of `ask` that equals `to_be`, or that is true; AssertionError, with the last one, if none is."""
    deadline_s = time.monotonic() + within_s
    while not _is_wanted(answer := ask(), to_be):
        assert time.monotonic() < deadline_s, _in_vain(what, answer, to_be)
        time.sleep(every_s)
    return answer


async def eventually_here(ask: Callable[[], T], *, to_be: object = _TRUE, what: str = "it") -> T:
    """Like `eventually`, while the event loop of the test runs on."""
    deadline_s = time.monotonic() + WITHIN_S
    while not _is_wanted(answer := ask(), to_be):
        assert time.monotonic() < deadline_s, _in_vain(what, answer, to_be)
        await asyncio.sleep(_LOOP_POLL_INTERVAL_S)
    return answer


def _is_wanted(answer: object, to_be: object) -> bool:
    return bool(answer) if to_be is _TRUE else answer == to_be


def _in_vain(what: str, answer: object, to_be: object) -> str:
    wanted = "" if to_be is _TRUE else f", wanted {to_be!r}"
    return f"waited in vain for {what}{wanted}; last seen: {answer!r}"[:_SHOWN]

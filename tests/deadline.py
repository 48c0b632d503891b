"""Waiting in tests: ask again until it is so, or fail with the last answer. Never a sleep that hopes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_INTERVAL_S = 0.02


def eventually(ask: Callable[[], T], within_s: float = 120, *, what: str = "it") -> T:
    """The first true answer of `ask`; AssertionError once the time is up."""
    deadline = time.monotonic() + within_s
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what} did not come true within {within_s} s; last answer: {answer!r}"
        time.sleep(POLL_INTERVAL_S)

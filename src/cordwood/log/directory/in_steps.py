"""Work of the loop that pauses, so that requests are served in between."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work that pauses after each step, and has a result."""


def in_one_step(steps: Steps[T]) -> T:
    """Does all of the work at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result

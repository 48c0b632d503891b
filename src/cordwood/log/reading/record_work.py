"""Runs Python work on records: in another process (`apart`), or in the caller's own."""

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class RecordWork(Protocol):
    """The place where work on records runs. Calls block, so callers use a thread."""

    def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """The result of a module-level function without side effects."""


class Here:
    """Runs the work in the caller's process: for a broker in memory, the simulator, the command line."""

    def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        return function(*arguments)

    def close(self) -> None:
        pass


HERE = Here()

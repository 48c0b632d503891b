"""Who does Python work on records: another process (`apart`), or whoever asks."""

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class RecordWork(Protocol):
    """Blocks: call it in work for a thread."""

    def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """What this function of a module gives for these arguments; it must not have side effects."""


class Here:
    """Where no loop has to be kept free: a broker in memory, the simulator, the command line."""

    def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        return function(*arguments)

    def close(self) -> None:
        pass


HERE = Here()

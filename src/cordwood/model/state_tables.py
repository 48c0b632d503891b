"""States as tables: the allowed previous states stand beside each state, and every move is checked against them.

A move that the table does not allow is a fault of this program: an assertion, before anything is written. State that is
restored from a log is no move: another program, or an earlier version of this one, may have written it.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Enum)


class State(Enum):
    """An enum for a table on a hot path: each member is hashed as the object that it is. Enum hashes by a function in
    Python, twice for each move."""

    __hash__ = object.__hash__


class Moves(Generic[S]):
    """The allowed moves of one kind of thing. `previous` has every state of the enum."""

    __slots__ = ("kind", "previous")

    def __init__(self, kind: str, previous: Mapping[S, Collection[S]]) -> None:
        self.kind = kind
        self.previous: Mapping[S, frozenset[S]] = {state: frozenset(allowed) for state, allowed in previous.items()}
        assert set(previous) == set(type(next(iter(previous)))), f"the table of a {kind} lacks a state"

    def moved(self, name: str, before: S, after: S) -> S:
        """The state after the move. `name` is the id of the thing that moves."""
        assert before in self.previous[after], self._forbidden(name, before, after)
        return after

    def _forbidden(self, name: str, before: S, after: S) -> str:
        allowed = ", ".join(state.name for state in type(after) if state in self.previous[after])
        return f"the {self.kind} {name} cannot move from {before.name} to {after.name}: " + (
            f"the allowed previous states are {allowed}" if allowed else "no move leads there"
        )

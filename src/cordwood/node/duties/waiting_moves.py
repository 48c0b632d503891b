"""Moves of logs that have not begun, in the order in which clients asked.

Each waiting move has a directory in its target, so that a restart knows of the move. One job at a time makes and
removes these directories, many together with one sync of each target: ten thousand moves that are asked for at once
must not occupy all threads of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.moving import make_futures, path_of_copy, remove_futures
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports

MADE_AT_ONCE = 100
"""The most directories that one job makes, and the most that it removes."""


class WaitingMove:
    __slots__ = ("given_up", "made", "path", "target")

    def __init__(self, target: DataDirectory, path: str) -> None:
        self.target = target
        self.path = path
        self.made = False
        """True if the directory exists."""
        self.given_up = False


class _Done(NamedTuple):
    failures: dict[str, StorageFailure]
    """The reasons why directories could not be made, by their paths."""
    not_removed: StorageFailure | None


class WaitingMoves:
    def __init__(
        self,
        loop: Loop,
        reports: Reports,
        new_id: Callable[[], str],
        made: Callable[[], None],
        failed: Callable[[TopicPartition, DataDirectory, Exception], None],
    ) -> None:
        """`new_id` returns 32 hexadecimal digits, different ones each time. `made` is called when a move may begin,
        `failed` with a move that was forgotten because its directory could not be made."""
        self._loop = loop
        self._reports = reports
        self._new_id = new_id
        self._made = made
        self._failed = failed
        self._moves: dict[TopicPartition, WaitingMove] = {}
        self._to_remove: list[tuple[DataDirectory, str]] = []
        self._working = False

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._moves)

    def get(self, name: TopicPartition) -> WaitingMove | None:
        return self._moves.get(name)

    def paths(self) -> set[str]:
        return {waiting.path for waiting in self._moves.values()}

    def to(self, target: DataDirectory) -> list[TopicPartition]:
        return [name for name, waiting in self._moves.items() if waiting.target is target]

    def add(self, name: TopicPartition, target: DataDirectory) -> None:
        assert name not in self._moves, f"{name} waits already"
        self._moves[name] = WaitingMove(target, path_of_copy(target, name, self._new_id()))
        self._work()

    def next_to_begin(self) -> TopicPartition | None:
        return next((name for name, waiting in self._moves.items() if waiting.made), None)

    def take(self, name: TopicPartition) -> WaitingMove:
        """Takes a move that begins."""
        return self._moves.pop(name)

    def forget(self, name: TopicPartition) -> None:
        """Forgets a move that has not begun, if there is one."""
        waiting = self._moves.pop(name, None)
        if waiting is not None:
            waiting.given_up = True
            if waiting.made:
                self._to_remove.append((waiting.target, waiting.path))
                self._work()

    def _work(self) -> None:
        if self._working:
            return
        new = [(name, waiting) for name, waiting in self._moves.items() if not waiting.made][:MADE_AT_ONCE]
        gone, self._to_remove = self._to_remove[:MADE_AT_ONCE], self._to_remove[MADE_AT_ONCE:]
        if not new and not gone:
            return
        self._working = True
        wanted = [(waiting.target, waiting.path) for _, waiting in new]
        self._loop.effects.blocking(partial(_make_and_remove, wanted, gone), partial(self._worked, new))

    def _worked(self, new: Iterable[tuple[TopicPartition, WaitingMove]], result: _Done | Exception) -> None:
        self._working = False
        failed: list[tuple[TopicPartition, WaitingMove, Exception]] = []
        for name, waiting in new:
            waiting.made = True
            failure = result if isinstance(result, Exception) else result.failures.get(waiting.path)
            if waiting.given_up:
                # A newer move of the partition may wait by now: only the directory of this move is removed.
                self._to_remove.append((waiting.target, waiting.path))
            elif failure is not None:
                self.forget(name)
                failed.append((name, waiting, failure))
        self._work()
        self._made()
        if not isinstance(result, Exception) and result.not_removed is not None:
            # The next move of the partition, or the next start, removes the copy.
            self._reports.failure(result.not_removed)
        for name, waiting, failure in failed:
            self._failed(name, waiting.target, failure)


def _make_and_remove(wanted: list[tuple[DataDirectory, str]], gone: list[tuple[DataDirectory, str]]) -> _Done:
    return _Done(make_futures(wanted), remove_futures(gone))

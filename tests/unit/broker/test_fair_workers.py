"""Threads for clients' questions, shared between connections."""

from collections.abc import Callable
from typing import Any

from cordwood.broker.machine.fair_workers import FairWorkers


class Threads:
    """Work that ends when the test says so."""

    def __init__(self) -> None:
        self.working: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.closed = False

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        assert not self.closed
        self.working.append((work, done))

    def close(self) -> None:
        """As the real ones: what is being done ends, and its results are delivered."""
        self.closed = True
        while self.working:
            self.end()

    def names(self) -> list[Any]:
        return [work() for work, _ in self.working]

    def end(self, place: int = 0) -> None:
        work, done = self.working.pop(place)
        done(work())


def ask(workers: FairWorkers, connection_id: int, name: str, finished: list[str]) -> None:
    workers.submit(connection_id, lambda: name, lambda result: finished.append(str(result)))


def test_one_connection_never_has_all_threads() -> None:
    threads, finished = Threads(), list[str]()
    workers = FairWorkers(threads, count=4, share=2)
    for number in range(10):
        ask(workers, 1, f"a{number}", finished)
    assert threads.names() == ["a0", "a1"]
    ask(workers, 2, "b0", finished)
    assert threads.names() == ["a0", "a1", "b0"]
    threads.end()
    assert finished == ["a0"]
    assert threads.names() == ["a1", "b0", "a2"]


def test_connections_take_turns() -> None:
    threads, finished = Threads(), list[str]()
    workers = FairWorkers(threads, count=1, share=1)
    for number in range(3):
        for connection_id, letter in ((1, "a"), (2, "b"), (3, "c")):
            ask(workers, connection_id, f"{letter}{number}", finished)
    while threads.working:
        threads.end()
    assert finished == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


def test_work_that_is_asked_for_while_an_answer_is_given_waits_its_turn() -> None:
    threads, finished = Threads(), list[str]()
    workers = FairWorkers(threads, count=1, share=1)
    workers.submit(1, lambda: "first", lambda _: ask(workers, 1, "second", finished))
    threads.end()
    assert threads.names() == ["second"]
    threads.end()
    assert finished == ["second"]
    assert threads.working == []


def test_work_that_waits_at_the_end_is_dropped() -> None:
    threads, finished = Threads(), list[str]()
    workers = FairWorkers(threads, count=1, share=1)
    for number in range(3):
        ask(workers, 1, f"a{number}", finished)
    workers.close()
    assert finished == ["a0"]

"""Writes a history from any client: one file, many threads.

The recorder owns the order of lines: an event is in the file before the call returns, so that a `send` stands before
all later actions on the record, and an `acked` after the acknowledgement. A history is as durable as an ordinary file:
the recording process is not the process that is killed.
"""

import threading
import time
from collections.abc import Callable, Iterable
from os import PathLike
from types import TracebackType
from typing import Self

from cordwood.history import events
from cordwood.history.events import Acks, Event, Isolation, Mode, Start

Value = str | bytes


def value_text(value: Value) -> str:
    """A value as text: UTF-8, and other bytes as `\\xNN`; a text is written like its bytes. Different values have
    different texts: a backslash before an `x` in the value itself is written as `\\x5c`."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return data.replace(rb"\x", rb"\x5cx").decode("utf-8", "backslashreplace")


def wall_clock_ms() -> float:
    return time.time_ns() / 1e6


class Recorder:
    """A history being written. Give `sink` instead of a path to have the events themselves, say in a list."""

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        sink: Callable[[Event], None] | None = None,
        clock_ms: Callable[[], float] = wall_clock_ms,
    ) -> None:
        if (path is None) == (sink is None):
            raise ValueError("a recorder needs either a path or a sink")
        self._lock = threading.Lock()
        self._file = None if path is None else open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115
        self._sink = sink
        self._clock_ms = clock_ms

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()

    def flush(self) -> None:
        """Hands all recorded lines to the operating system, so that another process can read them."""
        with self._lock:
            if self._file is not None:
                self._file.flush()

    def now_ms(self) -> float:
        return self._clock_ms()

    def record(self, event: Event) -> None:
        with self._lock:
            if self._file is not None:
                self._file.write(events.write(event) + "\n")
            else:
                assert self._sink is not None
                self._sink(event)

    def producer(
        self, who: str, *, acks: Acks = "all", idempotent: bool = True, retries: bool = True
    ) -> "ProducerRecorder":
        self.record(events.Producer(self.now_ms(), who, acks, idempotent, retries))
        return ProducerRecorder(self, who)

    def reader(
        self,
        who: str,
        *,
        mode: Mode = "assign",
        isolation: Isolation = "read_uncommitted",
        start: Start = "earliest",
    ) -> "ReaderRecorder":
        self.record(events.Reader(self.now_ms(), who, mode, isolation, start))
        return ReaderRecorder(self, who)

    def log_start_moved(self, topic: str, partition: int, offset: int) -> None:
        self.record(events.LogStartMoved(self.now_ms(), topic, partition, offset))

    def leader_lost(self, topic: str, partition: int) -> None:
        self.record(events.LeaderLost(self.now_ms(), topic, partition))


class ProducerRecorder:
    """One producer's events. Values must be unique in their topic: a record is recognised by its value."""

    def __init__(self, recorder: Recorder, who: str) -> None:
        self._recorder = recorder
        self.who = who

    def send(self, topic: str, value: Value, *, transaction: str | None = None) -> None:
        recorder = self._recorder
        recorder.record(events.Send(recorder.now_ms(), self.who, topic, value_text(value), transaction))

    def acked(self, topic: str, value: Value, partition: int, offset: int | None) -> None:
        recorder = self._recorder
        known = None if offset is None or offset < 0 else offset
        recorder.record(events.Acked(recorder.now_ms(), self.who, topic, value_text(value), partition, known))

    def failed(self, topic: str, value: Value) -> None:
        recorder = self._recorder
        recorder.record(events.Failed(recorder.now_ms(), self.who, topic, value_text(value)))

    def unknown(self, topic: str, value: Value) -> None:
        recorder = self._recorder
        recorder.record(events.Unknown(recorder.now_ms(), self.who, topic, value_text(value)))

    def begin(self, transaction: str) -> None:
        recorder = self._recorder
        recorder.record(events.TransactionBegun(recorder.now_ms(), self.who, transaction))

    def committing(self, transaction: str) -> None:
        """Records that the client is about to commit. Optional: only with this event are early reads found."""
        recorder = self._recorder
        recorder.record(events.TransactionCommitting(recorder.now_ms(), self.who, transaction))

    def committed(self, transaction: str) -> None:
        recorder = self._recorder
        recorder.record(events.TransactionCommitted(recorder.now_ms(), self.who, transaction))

    def aborted(self, transaction: str) -> None:
        recorder = self._recorder
        recorder.record(events.TransactionAborted(recorder.now_ms(), self.who, transaction))

    def transaction_unknown(self, transaction: str) -> None:
        recorder = self._recorder
        recorder.record(events.TransactionUnknown(recorder.now_ms(), self.who, transaction))


class ReaderRecorder:
    """One reader's events."""

    def __init__(self, recorder: Recorder, who: str) -> None:
        self._recorder = recorder
        self.who = who

    def positioned(self, topic: str, partition: int, offset: int | None) -> None:
        recorder = self._recorder
        recorder.record(events.Positioned(recorder.now_ms(), self.who, topic, partition, offset))

    def polled(self, topic: str, partition: int, records: Iterable[tuple[int, Value]]) -> None:
        recorder = self._recorder
        seen = tuple((offset, value_text(value)) for offset, value in records)
        recorder.record(events.Poll(recorder.now_ms(), self.who, topic, partition, seen))

    def drained(self, topic: str, partition: int) -> None:
        recorder = self._recorder
        recorder.record(events.Drained(recorder.now_ms(), self.who, topic, partition))

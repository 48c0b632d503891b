"""Condenses the observations of every client in one pass over a history.

This module owns the reading of events. It judges nothing that depends on later lines; it refuses, with the place, a
history that breaks the rules of the format (`InvalidHistory`).
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from cordwood.history import events
from cordwood.history.events import InvalidHistory
from cordwood.history.observed_offsets import (
    ACKED,
    ACKED_BY_ALL,
    ACKED_BY_LEADER,
    MAX_EVENTS,
    NO_VALUE,
    READ,
    READ_AS_COMMITTED,
    Positions,
    value_hash,
)
from cordwood.history.source import Line
from cordwood.model.identifiers import TopicPartition

UNKNOWN_START = -1


class Outcome(IntEnum):
    """How a send or a transaction ended."""

    OPEN = 0
    COMMITTED = 1
    ABORTED = 2
    UNKNOWN = 3


class Fate(IntEnum):
    """The answer that a producer got for a record without a known offset."""

    UNKNOWN = 0
    FAILED = 1
    ACKED = 2


class InFlight(NamedTuple):
    """A send without an outcome so far. The transaction is an index plus one, or 0."""

    producer: int
    begun_at: int
    transaction: int


class Placeless(NamedTuple):
    """A record without an offset at its producer: the send failed, timed out, or was acknowledged without an offset."""

    producer: int
    begun_at: int
    transaction: int
    fate: Fate


class Backwards(NamedTuple):
    """A reader got an offset at or below one that it had before."""

    reader: int
    event: int
    before: int
    after: int
    within_poll: bool


class WeakConflict(NamedTuple):
    """The leader alone acknowledged another value than the offset holds: excused if the leader was lost."""

    offset: int
    begun_at: int


class EarlyRead(NamedTuple):
    """A reader of committed records got a record of a transaction (index plus one) that did not commit yet."""

    partition: TopicPartition
    offset: int
    event: int
    transaction: int


class Drain(NamedTuple):
    """A reader reached the end: it must have read every record from offset `start` on that was acknowledged before
    `until`. `end` is the highest offset that it read, and None for a reader by subscription, whose group may have read
    further."""

    start: int
    until: int
    event: int
    end: int | None


@dataclass(slots=True)
class PartitionSeen:
    """The observations of one partition."""

    positions: Positions = field(default_factory=Positions)
    conflicts: set[int] = field(default_factory=set)
    weak_conflicts: list[WeakConflict] = field(default_factory=list)
    displaced: dict[tuple[int, int], bool] = field(default_factory=dict)
    """True if a reader got it there, by offset and hash of a value that was acknowledged at an offset where another
    value is known. The producer's part of it is in the topic's `placeless`."""
    acked_without_offset: dict[int, int] = field(default_factory=dict)
    """Event number of the acknowledgement, by the hash of the value; not with acks=0, which promises nothing."""
    backwards: list[Backwards] = field(default_factory=list)
    covered: list[tuple[int, int]] = field(default_factory=list)
    drains: list[Drain] = field(default_factory=list)
    # Leaps of a reader over offsets, in columns: a transactional topic has one per transaction.
    leap_before: "array[int]" = field(default_factory=lambda: array("q"))
    leap_after: "array[int]" = field(default_factory=lambda: array("q"))
    leap_reader: "array[int]" = field(default_factory=lambda: array("I"))
    leap_event: "array[int]" = field(default_factory=lambda: array("I"))
    log_start_offset: int = 0
    leader_lost_at: int = 0
    last_acked_at: int = 0
    highest_read: int = -1


@dataclass(slots=True)
class TopicSeen:
    """The records of a topic that are not at an offset yet, by the hash of their value."""

    in_flight: dict[int, InFlight] = field(default_factory=dict)
    placeless: dict[int, Placeless] = field(default_factory=dict)
    partitions: dict[int, PartitionSeen] = field(default_factory=dict)
    has_sends: bool = False
    open_since: dict[int, int] = field(default_factory=dict)
    """Event number of the first send to this topic, by transaction (index plus one) that has not ended."""

    def partition(self, number: int) -> PartitionSeen:
        seen = self.partitions.get(number)
        if seen is None:
            seen = self.partitions[number] = PartitionSeen()
        return seen


@dataclass(slots=True)
class Place:
    """A reader's place in one partition: the run since it last positioned itself."""

    start: int
    last: int | None
    low: int | None = None
    high: int | None = None


@dataclass(slots=True)
class Totals:
    """How much was checked."""

    events: int = 0
    producers: int = 0
    readers: int = 0
    sends: int = 0
    acked: int = 0
    failed: int = 0
    unknown: int = 0
    records_read: int = 0
    transactions: int = 0
    partitions: int = 0


class Observations:
    """A history, read. Producers, readers and transactions are numbered in order of appearance."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicSeen] = {}
        self.producers: list[events.Producer] = []
        self.readers: list[events.Reader] = []
        self.outcomes = bytearray()
        """Outcome of each transaction."""
        self.early_reads: list[EarlyRead] = []
        """The first early read of each transaction."""
        self.totals = Totals()
        self._producer_index: dict[str, int] = {}
        self._reader_index: dict[str, int] = {}
        self._open_transactions: dict[str, int] = {}
        # The first read of each transaction (index plus one) that has not been seen to end or to begin its commit. A
        # read is early only if the line that begins the commit comes later: a history may lack that line.
        self._uncommitted: dict[int, EarlyRead | None] = {}
        self._places: dict[tuple[int, str, int], Place] = {}
        self._line: Line | None = None

    def topic(self, name: str) -> TopicSeen:
        seen = self.topics.get(name)
        if seen is None:
            seen = self.topics[name] = TopicSeen()
        return seen

    def partition(self, partition: TopicPartition) -> PartitionSeen:
        return self.topics[partition.topic].partitions[partition.partition]

    def read(self, lines: Iterable[Line]) -> None:
        """Takes in the whole history."""
        number = 0
        for number, line in enumerate(lines, 1):
            self._line = line
            event = line.event
            match event:
                case events.Poll():
                    self._on_poll(event, number)
                case events.Send():
                    self._on_send(event, number)
                case events.Acked():
                    self._on_acked(event, number)
                case events.Failed():
                    self._on_no_offset(event, Fate.FAILED)
                case events.Unknown():
                    self._on_no_offset(event, Fate.UNKNOWN)
                case events.Positioned():
                    self._on_positioned(event)
                case events.Drained():
                    self._on_drained(event, number)
                case _:
                    self._on_rare(event, number)
        if number > MAX_EVENTS:
            raise InvalidHistory(f"a history of more than {MAX_EVENTS} events cannot be checked at once")
        self._finish(number)

    def _on_rare(self, event: events.Event, number: int) -> None:
        match event:
            case events.Producer():
                self._declare(self._producer_index, event.who, len(self.producers))
                self.producers.append(event)
            case events.Reader():
                self._declare(self._reader_index, event.who, len(self.readers))
                self.readers.append(event)
            case events.TransactionBegun():
                self._producer_of(event.who)
                if event.transaction in self._open_transactions:
                    raise self._invalid(f"transaction {event.transaction!r} is begun twice")
                self._open_transactions[event.transaction] = len(self.outcomes)
                self.outcomes.append(Outcome.OPEN)
                self._uncommitted[len(self.outcomes)] = None
            case events.TransactionCommitting():
                early = self._uncommitted.pop(self._open_transaction(event.transaction) + 1, None)
                if early is not None:
                    self.early_reads.append(early)
            case events.TransactionCommitted():
                self._end_transaction(event.transaction, Outcome.COMMITTED)
            case events.TransactionAborted():
                self._end_transaction(event.transaction, Outcome.ABORTED)
            case events.TransactionUnknown():
                self._end_transaction(event.transaction, Outcome.UNKNOWN)
            case events.LogStartMoved():
                seen = self.topic(event.topic).partition(event.partition)
                seen.log_start_offset = max(seen.log_start_offset, event.offset)
            case events.LeaderLost():
                self.topic(event.topic).partition(event.partition).leader_lost_at = number
            case _:
                raise AssertionError(f"an unhandled event: {event!r}")

    def _declare(self, table: dict[str, int], who: str, index: int) -> None:
        if who in table:
            raise self._invalid(f"{who!r} is declared twice")
        table[who] = index

    def _open_transaction(self, transaction: str) -> int:
        index = self._open_transactions.get(transaction)
        if index is None:
            raise self._invalid(f"transaction {transaction!r} is not open")
        return index

    def _end_transaction(self, transaction: str, outcome: Outcome) -> None:
        index = self._open_transaction(transaction)
        del self._open_transactions[transaction]
        self._uncommitted.pop(index + 1, None)
        self.outcomes[index] = outcome
        for topic in self.topics.values():
            topic.open_since.pop(index + 1, None)

    def _on_send(self, event: events.Send, number: int) -> None:
        topic = self.topic(event.topic)
        topic.has_sends = True
        hashed = value_hash(event.value)
        if hashed in topic.in_flight or hashed in topic.placeless:
            raise self._invalid(f"the value {event.value!r} is sent twice to {event.topic}: values must be unique")
        transaction = 0
        if event.transaction is not None:
            transaction = self._open_transaction(event.transaction) + 1
            topic.open_since.setdefault(transaction, number)
        topic.in_flight[hashed] = InFlight(self._producer_of(event.who), number, transaction)
        self.totals.sends += 1

    def _take_in_flight(self, event: events.Acked | events.Failed | events.Unknown) -> tuple[int, InFlight]:
        hashed = value_hash(event.value)
        in_flight = self.topic(event.topic).in_flight.pop(hashed, None)
        producer = self._producer_of(event.who)
        if in_flight is None or in_flight.producer != producer:
            raise self._invalid(f"{event.who!r} has no send of {event.value!r} to {event.topic} under way")
        return hashed, in_flight

    def _on_no_offset(self, event: events.Failed | events.Unknown, fate: Fate) -> None:
        hashed, send = self._take_in_flight(event)
        self.topics[event.topic].placeless[hashed] = Placeless(*send, fate)
        if fate is Fate.FAILED:
            self.totals.failed += 1
        else:
            self.totals.unknown += 1

    def _on_acked(self, event: events.Acked, number: int) -> None:
        hashed, send = self._take_in_flight(event)
        self.totals.acked += 1
        topic = self.topics[event.topic]
        seen = topic.partition(event.partition)
        offset = event.offset
        acks = self.producers[send.producer].acks
        if acks != "0":
            seen.last_acked_at = number
            if offset is None:
                seen.acked_without_offset[hashed] = number
        if offset is None or acks == "0":
            topic.placeless[hashed] = Placeless(*send, Fate.ACKED)
            return
        page, index = seen.positions.page_for(offset)
        held, marks = page.value[index], page.marks[index]
        if held != NO_VALUE and (held != hashed or marks & ACKED):
            if not self._gives_way(topic, seen, offset):
                if acks == "1":
                    seen.weak_conflicts.append(WeakConflict(offset, send.begun_at))
                else:
                    seen.conflicts.add(offset)
                topic.placeless[hashed] = Placeless(*send, Fate.ACKED)
                seen.displaced[offset, hashed] = False
                return
            marks = 0
        page.value[index] = hashed
        page.begun_at[index] = send.begun_at
        page.acked_at[index] = number
        page.producer[index] = send.producer + 1
        page.transaction[index] = send.transaction
        page.marks[index] = marks | ACKED | (ACKED_BY_ALL if acks == "all" else ACKED_BY_LEADER)

    def _gives_way(self, topic: TopicSeen, seen: PartitionSeen, offset: int) -> bool:
        """True if the offset holds only an acks=1 acknowledgement that no reader has seen; then the offset is put
        aside."""
        page, index = seen.positions.page_for(offset)
        if page.marks[index] != ACKED | ACKED_BY_LEADER:
            return False
        seen.weak_conflicts.append(WeakConflict(offset, page.begun_at[index]))
        topic.placeless[page.value[index]] = Placeless(
            page.producer[index] - 1, page.begun_at[index], page.transaction[index], Fate.ACKED
        )
        seen.displaced[offset, page.value[index]] = False
        page.producer[index] = page.transaction[index] = page.begun_at[index] = page.acked_at[index] = 0
        return True

    def _on_positioned(self, event: events.Positioned) -> None:
        reader = self._reader_of(event.who)
        if self.readers[reader].mode != "assign":
            raise self._invalid(f"{event.who!r} subscribes: its group positions it")
        key = (reader, event.topic, event.partition)
        self._close_run(key)
        if event.offset is None:
            self._places[key] = Place(UNKNOWN_START, None)
        else:
            self._places[key] = Place(event.offset, event.offset - 1)
        self.topic(event.topic).partition(event.partition)

    def _place(self, reader: int, topic: str, partition: int) -> Place:
        key = (reader, topic, partition)
        place = self._places.get(key)
        if place is None:
            declared = self.readers[reader]
            from_latest = declared.mode == "subscribe" and declared.start == "latest"
            place = self._places[key] = Place(UNKNOWN_START if from_latest else 0, None)
        return place

    def _close_run(self, key: tuple[int, str, int]) -> None:
        place = self._places.pop(key, None)
        if place is None or place.low is None or place.high is None:
            return
        start = place.low if place.start == UNKNOWN_START else min(place.start, place.low)
        self.topics[key[1]].partition(key[2]).covered.append((start, place.high))

    def _on_poll(self, event: events.Poll, number: int) -> None:
        reader = self._reader_of(event.who)
        topic = self.topic(event.topic)
        seen = topic.partition(event.partition)
        place = self._place(reader, event.topic, event.partition)
        declared = self.readers[reader]
        if declared.mode == "subscribe":
            # A rebalance may have moved the reader anywhere between two polls.
            place.last = None
        marks = READ | (READ_AS_COMMITTED if declared.isolation == "read_committed" else 0)
        last = place.last
        within_poll = False
        page_for = seen.positions.page_for
        for offset, value in event.records:
            if last is not None and offset != last + 1:
                if offset <= last:
                    seen.backwards.append(Backwards(reader, number, last, offset, within_poll))
                else:
                    seen.leap_before.append(last)
                    seen.leap_after.append(offset)
                    seen.leap_reader.append(reader)
                    seen.leap_event.append(number)
            last = offset
            within_poll = True
            if place.low is None or place.high is None:
                place.low = place.high = offset
            elif offset > place.high:
                place.high = offset
            elif offset < place.low:
                place.low = offset
            page, index = page_for(offset)
            hashed = value_hash(value)
            held = page.value[index]
            if held != hashed:
                if held == NO_VALUE:
                    page.value[index] = hashed
                elif self._gives_way(topic, seen, offset):
                    page.value[index] = hashed
                    page.marks[index] = 0
                else:
                    # Another value than the known one was read: the known one stays unread.
                    seen.conflicts.add(offset)
                    if (offset, hashed) in seen.displaced:
                        seen.displaced[offset, hashed] = True
                    continue
            page.marks[index] |= marks
            if self._uncommitted and marks & READ_AS_COMMITTED and page.value[index] == hashed:
                sent = topic.in_flight.get(hashed) or topic.placeless.get(hashed)
                transaction = sent.transaction if sent is not None else page.transaction[index]
                if transaction in self._uncommitted and self._uncommitted[transaction] is None:
                    at = TopicPartition(event.topic, event.partition)
                    self._uncommitted[transaction] = EarlyRead(at, offset, number, transaction)
        place.last = last
        if place.high is not None and place.high > seen.highest_read:
            seen.highest_read = place.high
        self.totals.records_read += len(event.records)

    def _on_drained(self, event: events.Drained, number: int) -> None:
        reader = self._reader_of(event.who)
        place = self._place(reader, event.topic, event.partition)
        start = place.start
        if start == UNKNOWN_START:
            if place.low is None:
                return
            start = place.low
        topic = self.topic(event.topic)
        until = number
        if self.readers[reader].isolation == "read_committed":
            # For this reader the log ends at the first record of an open transaction. Records acknowledged before that
            # record was sent are below it; later records of any producer may be behind it.
            until = min(topic.open_since.values(), default=number)
        end = None
        if self.readers[reader].mode == "assign":
            end = start - 1 if place.high is None else place.high
        topic.partition(event.partition).drains.append(Drain(start, until, number, end))

    def _producer_of(self, who: str) -> int:
        index = self._producer_index.get(who)
        if index is None:
            raise self._invalid(f"producer {who!r} is not declared")
        return index

    def _reader_of(self, who: str) -> int:
        index = self._reader_index.get(who)
        if index is None:
            raise self._invalid(f"reader {who!r} is not declared")
        return index

    def _invalid(self, reason: str) -> InvalidHistory:
        assert self._line is not None
        return InvalidHistory(f"{self._line.place}: {reason}")

    def _finish(self, events_read: int) -> None:
        for key in list(self._places):
            self._close_run(key)
        for topic in self.topics.values():
            for hashed, send in topic.in_flight.items():
                topic.placeless[hashed] = Placeless(*send, Fate.UNKNOWN)
                self.totals.unknown += 1
            topic.in_flight.clear()
        totals = self.totals
        totals.events = events_read
        totals.producers = len(self.producers)
        totals.readers = len(self.readers)
        totals.transactions = len(self.outcomes)
        totals.partitions = sum(len(topic.partitions) for topic in self.topics.values())

"""The checker against a log that is right: its histories are clean, and any one lie in them is found.

The log here is the dumbest possible: a list per partition. Clients on top of it behave as real ones do: several sends
in flight, acknowledgements that come late, timeouts after which the record is there or not, retries that write twice
where the producer is not idempotent, transactions that commit, abort or end unknown, readers that lag, seek, filter.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.seeds import examples

from cordwood.history import Anomaly, ProducerRecorder, ReaderRecorder, Recorder, Report, check
from cordwood.history.events import (
    Acked,
    Acks,
    Event,
    Failed,
    Isolation,
    Poll,
    Producer,
    Send,
    TransactionAborted,
    TransactionCommitted,
    TransactionCommitting,
    TransactionUnknown,
)

TOPIC = "t"


@dataclass
class Entry:
    """The content of a partition at one offset: a record, or the marker that ends a transaction (no value)."""

    value: str | None
    transaction: str | None = None


@dataclass
class World:
    """The log, and the fate of each transaction: None while it is open."""

    partitions: list[list[Entry]]
    committed: dict[str, bool | None] = field(default_factory=dict)

    def visible(self, partition: int, start: int, isolation: Isolation) -> list[tuple[int, str]]:
        records: list[tuple[int, str]] = []
        for offset, entry in enumerate(self.partitions[partition]):
            if isolation == "read_committed" and entry.transaction and entry.value is not None:
                outcome = self.committed[entry.transaction]
                if outcome is None:
                    break
                if not outcome:
                    continue
            if offset >= start and entry.value is not None:
                records.append((offset, entry.value))
        return records

    def end_transaction(self, name: str, *, commit: bool) -> None:
        self.committed[name] = commit
        for entries in self.partitions:
            if any(entry.transaction == name for entry in entries):
                entries.append(Entry(None, name))


@dataclass
class Client:
    recorder: ProducerRecorder
    acks: Acks
    idempotent: bool
    retries: bool
    in_flight: list[list[str]]
    transaction: str | None = None
    transactional: bool = False


class Run:
    """One random run of clients on the world."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.events: list[Event] = []
        self.recorder = Recorder(sink=self.events.append, clock_ms=lambda: float(len(self.events)))
        self.world = World([[] for _ in range(random.randint(1, 3))])
        self.sent = 0
        self.clients = [self.client(number) for number in range(random.randint(1, 3))]
        self.readers: list[tuple[ReaderRecorder, Isolation, list[int]]] = []
        for number in range(random.randint(1, 2)):
            isolation: Isolation = random.choice(["read_committed", "read_uncommitted"])
            self.readers.append((self.reader(f"r{number}", isolation), isolation, [0] * len(self.world.partitions)))

    def client(self, number: int) -> Client:
        idempotent = self.random.random() < 0.6
        acks: Acks = "all" if idempotent else self.random.choice(["all", "1", "0"])
        retries = idempotent or self.random.random() < 0.5
        recorder = self.recorder.producer(f"p{number}", acks=acks, idempotent=idempotent, retries=retries)
        client = Client(recorder, acks, idempotent, retries, [[] for _ in self.world.partitions])
        client.transactional = idempotent and self.random.random() < 0.5
        return client

    def reader(self, who: str, isolation: Isolation) -> ReaderRecorder:
        reader = self.recorder.reader(who, isolation=isolation)
        for partition in range(len(self.world.partitions)):
            reader.positioned(TOPIC, partition, 0)
        return reader

    def go(self) -> list[Event]:
        for _ in range(self.random.randint(10, 60)):
            if self.random.random() < 0.7:
                self.produce(self.random.choice(self.clients))
            else:
                self.poll(*self.random.choice(self.readers))
        for client in self.clients:
            self.settle(client)
            self.end_transaction(client)
        final = self.reader("final", "read_committed")
        positions = [0] * len(self.world.partitions)
        for partition in range(len(positions)):
            while self.poll_partition(final, "read_committed", positions, partition):
                pass
            final.drained(TOPIC, partition)
        return self.events

    def produce(self, client: Client) -> None:
        if client.transactional and client.transaction is None:
            client.transaction = f"x{len(self.world.committed)}"
            self.world.committed[client.transaction] = None
            client.recorder.begin(client.transaction)
        partition = self.random.randrange(len(self.world.partitions))
        if self.random.random() < 0.6:
            value = f"v{self.sent}"
            self.sent += 1
            client.recorder.send(TOPIC, value, transaction=client.transaction)
            client.in_flight[partition].append(value)
        else:
            self.complete(client, partition)
        if client.transaction is not None and self.random.random() < 0.15:
            self.settle(client)
            self.end_transaction(client)

    def settle(self, client: Client) -> None:
        for partition in range(len(client.in_flight)):
            while client.in_flight[partition]:
                self.complete(client, partition)

    def complete(self, client: Client, partition: int) -> None:
        if not client.in_flight[partition]:
            return
        # A producer that may reorder takes any of its records in flight, the others the oldest.
        loose = client.retries and not client.idempotent
        value = client.in_flight[partition].pop(self.random.randrange(len(client.in_flight[partition])) if loose else 0)
        entries = self.world.partitions[partition]
        fate = self.random.random()
        if fate < 0.1:
            client.recorder.failed(TOPIC, value)
            return
        if fate < 0.2:
            client.recorder.unknown(TOPIC, value)
            if self.random.random() < 0.5:
                entries.append(Entry(value, client.transaction))
            return
        for _ in range(2 if loose and self.random.random() < 0.2 else 1):
            entries.append(Entry(value, client.transaction))
        # With acks=0 a client learns no offset, nor does it for a duplicate of an old record.
        told = client.acks != "0" and self.random.random() < 0.8
        client.recorder.acked(TOPIC, value, partition, len(entries) - 1 if told else None)

    def end_transaction(self, client: Client) -> None:
        name, client.transaction = client.transaction, None
        if name is None:
            return
        fate = self.random.choice(["commit", "abort", "unknown"])
        commit = fate == "commit" or (fate == "unknown" and self.random.random() < 0.5)
        if commit:
            client.recorder.committing(name)
        self.world.end_transaction(name, commit=commit)
        if fate == "commit":
            client.recorder.committed(name)
        elif fate == "abort":
            client.recorder.aborted(name)
        else:
            client.recorder.transaction_unknown(name)

    def poll(self, reader: ReaderRecorder, isolation: Isolation, positions: list[int]) -> None:
        partition = self.random.randrange(len(positions))
        if self.random.random() < 0.1:
            positions[partition] = self.random.randint(0, len(self.world.partitions[partition]))
            reader.positioned(TOPIC, partition, positions[partition])
        if not self.poll_partition(reader, isolation, positions, partition):
            # The end for this reader: the last stable offset, if it reads committed records.
            reader.drained(TOPIC, partition)

    def poll_partition(
        self, reader: ReaderRecorder, isolation: Isolation, positions: list[int], partition: int
    ) -> bool:
        records = self.world.visible(partition, positions[partition], isolation)[: self.random.randint(1, 5)]
        if records:
            positions[partition] = records[-1][0] + 1
        reader.polled(TOPIC, partition, records)
        return bool(records)


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(150), deadline=None)
def test_the_history_of_a_log_that_is_right_is_clean(random: Random) -> None:
    report = check(Run(random).go())
    assert report.clean, report.render()


@given(st.integers(0, 2**32))
@settings(max_examples=examples(300), deadline=None)
def test_so_is_any_beginning_of_it(seed: int) -> None:
    random = Random(seed)
    events = Run(random).go()
    report = check(events[: random.randint(0, len(events))])
    assert report.clean, report.render()


def final_polls(events: list[Event]) -> list[int]:
    return [i for i, event in enumerate(events) if isinstance(event, Poll) and event.who == "final" and event.records]


def strict_producers(events: list[Event]) -> set[str]:
    return {event.who for event in events if isinstance(event, Producer) and (event.idempotent or not event.retries)}


def acked_offsets(events: list[Event]) -> dict[str, Acked]:
    """Acknowledgements with an offset, by value."""
    return {event.value: event for event in events if isinstance(event, Acked) and event.offset is not None}


def of_unknown_transactions(events: list[Event]) -> set[str]:
    """Values that only a read can show to be visible: without one, nothing is demanded of them."""
    unknown = {event.transaction for event in events if isinstance(event, TransactionUnknown)}
    return {event.value for event in events if isinstance(event, Send) and event.transaction in unknown}


def lose_a_record(events: list[Event], random: Random) -> set[Anomaly]:
    """Removes all reads of an acknowledged record that `final` did read."""
    promising = {event.who for event in events if isinstance(event, Producer) and event.acks != "0"}
    strict = promising & strict_producers(events)
    # If a record may be there twice, the acknowledged copy must be known.
    acked = {
        event.value: event.offset
        for event in events
        if isinstance(event, Acked) and (event.offset is not None or event.who in strict)
    }
    excused = of_unknown_transactions(events)
    readable = [
        (poll.partition, offset)
        for poll in events
        if isinstance(poll, Poll) and poll.who == "final"
        for offset, value in poll.records
        if value in acked and acked[value] in (None, offset) and value not in excused
    ]
    assume(readable)
    gone = random.choice(readable)
    for i, event in enumerate(events):
        if isinstance(event, Poll):
            kept = tuple(record for record in event.records if (event.partition, record[0]) != gone)
            events[i] = event._replace(records=kept)
    return {Anomaly.LOST_WRITE, Anomaly.UNSEEN, Anomaly.TORN_TRANSACTION}


def change_a_value(events: list[Event], random: Random) -> set[Anomaly]:
    polls = final_polls(events)
    assume(polls)
    i = random.choice(polls)
    poll = events[i]
    assert isinstance(poll, Poll)
    at = random.randrange(len(poll.records))
    records = list(poll.records)
    records[at] = (records[at][0], records[at][1] + "?")
    events[i] = poll._replace(records=tuple(records))
    return {Anomaly.INCONSISTENT_OFFSETS, Anomaly.NEVER_SENT}


def swap_two_reads(events: list[Event], random: Random) -> set[Anomaly]:
    polls = [i for i in final_polls(events) if len(events[i].records) > 1]  # type: ignore[union-attr]
    assume(polls)
    i = random.choice(polls)
    poll = events[i]
    assert isinstance(poll, Poll)
    at = random.randrange(len(poll.records) - 1)
    records = list(poll.records)
    records[at], records[at + 1] = records[at + 1], records[at]
    events[i] = poll._replace(records=tuple(records))
    return {Anomaly.NON_MONOTONIC_POLL}


def skip_a_read(events: list[Event], random: Random) -> set[Anomaly]:
    """Has `final` miss a record in the middle that another reader got."""
    others = {
        (event.partition, offset)
        for event in events
        if isinstance(event, Poll) and event.who != "final"
        for offset, _ in event.records
    }
    excused = of_unknown_transactions(events)
    candidates = [
        (i, at)
        for i in final_polls(events)
        for at, (offset, value) in enumerate(events[i].records[:-1])  # type: ignore[union-attr]
        if (events[i].partition, offset) in others and value not in excused  # type: ignore[union-attr]
    ]
    assume(candidates)
    i, at = random.choice(candidates)
    poll = events[i]
    assert isinstance(poll, Poll)
    events[i] = poll._replace(records=poll.records[:at] + poll.records[at + 1 :])
    return {Anomaly.POLL_SKIP}


def write_twice(events: list[Event], random: Random) -> set[Anomaly]:
    """Repeats a record of a producer that must not duplicate, behind the end."""
    strict = strict_producers(events)
    polls = final_polls(events)
    acked = acked_offsets(events)
    candidates = [
        i
        for i in polls
        if any(v in acked and acked[v].who in strict for _, v in events[i].records)  # type: ignore[union-attr]
    ]
    assume(candidates)
    poll = events[random.choice(candidates)]
    assert isinstance(poll, Poll)
    value = random.choice([v for _, v in poll.records if v in acked and acked[v].who in strict])
    last = max(i for i in polls if events[i].partition == poll.partition)  # type: ignore[union-attr]
    poll = events[last]
    assert isinstance(poll, Poll)
    events[last] = poll._replace(records=(*poll.records, (10_000, value)))
    return {Anomaly.DUPLICATE}


def acknowledge_another_offset(events: list[Event], random: Random) -> set[Anomaly]:
    """Acknowledges an offset that holds another record, which a reader got."""
    read = {
        (event.partition, offset): value
        for event in events
        if isinstance(event, Poll)
        for offset, value in event.records
    }
    candidates = [
        (i, offset)
        for i, event in enumerate(events)
        if isinstance(event, Acked) and event.offset is not None
        for (partition, offset), value in read.items()
        if partition == event.partition and value != event.value
    ]
    assume(candidates)
    i, offset = random.choice(candidates)
    event = events[i]
    assert isinstance(event, Acked)
    events[i] = event._replace(offset=offset)
    return {Anomaly.INCONSISTENT_OFFSETS}


def deny_a_write(events: list[Event], random: Random) -> set[Anomaly]:
    """Reports a failure to the producer of a record that was read."""
    read = {value for event in events if isinstance(event, Poll) for _, value in event.records}
    candidates = [i for i, event in enumerate(events) if isinstance(event, Acked) and event.value in read]
    assume(candidates)
    i = random.choice(candidates)
    event = events[i]
    assert isinstance(event, Acked)
    events[i] = Failed(event.at_ms, event.who, event.topic, event.value)
    return {Anomaly.ABORTED_READ}


def abort_what_was_committed(events: list[Event], random: Random) -> set[Anomaly]:
    read = {value for event in events if isinstance(event, Poll) and event.who == "final" for _, value in event.records}
    in_transactions = {event.transaction for event in events if isinstance(event, Send) and event.value in read}
    candidates = [
        i
        for i, event in enumerate(events)
        if isinstance(event, TransactionCommitted) and event.transaction in in_transactions
    ]
    assume(candidates)
    i = random.choice(candidates)
    event = events[i]
    assert isinstance(event, TransactionCommitted)
    events[i] = TransactionAborted(event.at_ms, event.who, event.transaction)
    return {Anomaly.ABORTED_READ}


def commit_only_now(events: list[Event], random: Random) -> set[Anomaly]:
    """Commits a transaction after it was read as committed."""
    read = {value for event in events if isinstance(event, Poll) and event.who == "final" for _, value in event.records}
    in_transactions = {event.transaction for event in events if isinstance(event, Send) and event.value in read}
    candidates = [
        event.transaction
        for event in events
        if isinstance(event, TransactionCommitting) and event.transaction in in_transactions
    ]
    assume(candidates)
    name = random.choice(candidates)
    ends = (TransactionCommitting, TransactionCommitted, TransactionUnknown)
    ending: list[Event] = [event for event in events if isinstance(event, ends) and event.transaction == name]
    events[:] = [event for event in events if event not in ending] + ending
    return {Anomaly.EARLY_READ}


LIES: list[Callable[[list[Event], Random], set[Anomaly]]] = [
    lose_a_record,
    change_a_value,
    swap_two_reads,
    skip_a_read,
    write_twice,
    acknowledge_another_offset,
    deny_a_write,
    abort_what_was_committed,
    commit_only_now,
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
@given(random=st.randoms(use_true_random=False))
@settings(max_examples=examples(40), deadline=None)
def test_one_lie_is_found(lie: Callable[[list[Event], Random], set[Anomaly]], random: Random) -> None:
    events = Run(random).go()
    expected = lie(events, random)
    report: Report = check(events)
    assert expected & set(report.counts), report.render()
    assert len(report.findings) == sum(report.counts.values())
    assert all(finding.sentence for finding in report.findings)

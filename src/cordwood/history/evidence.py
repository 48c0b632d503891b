"""The second pass: finds which client saw which value when, for each suspect, and writes the sentence.

Every finding rests on lines of the history and names them. A suspect that exists only because two values have the same
hash is dropped here.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from cordwood.history import events
from cordwood.history.anomalies import NO_OFFSET, Anomaly, At, Suspect
from cordwood.history.events import InvalidHistory
from cordwood.history.observations import Observations
from cordwood.history.observed_offsets import value_hash
from cordwood.history.report import Finding
from cordwood.history.source import Line
from cordwood.model.identifiers import TopicPartition

READS_KEPT = 8
"""The most reads of one offset that are kept: findings name the first ones."""

EARLIEST_WALL_CLOCK_MS = 1e11
"""Smaller times count as milliseconds of the recorder's own clock, not as dates."""


def at_time(at_ms: float) -> str:
    if at_ms < EARLIEST_WALL_CLOCK_MS:
        return f"at {at_ms:g} ms"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("at %Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


class Sighting(NamedTuple):
    """One client's knowledge of one record."""

    verb: str
    who: str
    value: str
    at_ms: float
    place: str

    def told(self) -> str:
        return f"{self.verb} {self.who} {at_time(self.at_ms)} ({self.place})"


class TransactionSeen(NamedTuple):
    name: str
    who: str
    ended: str


class Evidence:
    """The lines of the history about the offsets of the suspects."""

    def __init__(self, seen: Observations, suspects: list[Suspect]) -> None:
        self.by_position: dict[At, list[Sighting]] = {}
        self.sends: dict[tuple[str, int], Sighting] = {}
        self.failures: dict[tuple[str, int], Sighting] = {}
        self.lines: dict[int, Line] = {}
        self.transactions: dict[int, TransactionSeen] = {}
        self._partitions: set[TopicPartition] = set()
        self._values: set[tuple[str, int]] = set()
        self._events: set[int] = set()
        for suspect in suspects:
            self._events.add(suspect.event)
            if suspect.transaction:
                self.transactions[suspect.transaction] = TransactionSeen("?", "?", "never ended")
            for at in suspect.at:
                self.by_position.setdefault(at, [])
                self._partitions.add(at.partition)
                page, index = (
                    seen.partition(at.partition).positions.page_for(at.offset) if at.offset >= 0 else (None, 0)
                )
                if page is not None and page.value[index]:
                    self._values.add((at.partition.topic, page.value[index]))

    def gather(self, lines: Iterable[Line]) -> None:
        transactions_begun = 0
        open_transactions: dict[str, int] = {}
        for number, line in enumerate(lines, 1):
            if number in self._events:
                self.lines[number] = line
            event = line.event
            match event:
                case events.Poll():
                    self._on_poll(event, line)
                case events.Send():
                    self._on_send(event, line)
                case events.Acked():
                    partition = TopicPartition(event.topic, event.partition)
                    if event.offset is None:
                        at = At(partition, NO_OFFSET, value_hash(event.value))
                    else:
                        at = At(partition, event.offset)
                    self._add(at, Sighting("acknowledged to", event.who, event.value, event.at_ms, line.place))
                case events.Failed():
                    key = (event.topic, value_hash(event.value))
                    if key in self._values:
                        self.failures[key] = Sighting("refused to", event.who, event.value, event.at_ms, line.place)
                case events.TransactionBegun():
                    transactions_begun += 1
                    if transactions_begun in self.transactions:
                        open_transactions[event.transaction] = transactions_begun
                        self.transactions[transactions_begun] = TransactionSeen(
                            event.transaction, event.who, "never ended"
                        )
                case events.TransactionCommitted() | events.TransactionAborted() | events.TransactionUnknown():
                    index = open_transactions.pop(event.transaction, None)
                    if index is not None:
                        self.transactions[index] = TransactionSeen(event.transaction, event.who, _ended(event, line))
                case _:
                    pass

    def _add(self, at: At, sighting: Sighting) -> None:
        sightings = self.by_position.get(at)
        if sightings is None:
            return
        # Every new value of an offset counts; a repeated value counts the first few times.
        if len(sightings) < READS_KEPT or all(sighting.value != other.value for other in sightings):
            sightings.append(sighting)

    def _on_poll(self, event: events.Poll, line: Line) -> None:
        partition = TopicPartition(event.topic, event.partition)
        if partition not in self._partitions:
            return
        for offset, value in event.records:
            at = At(partition, offset)
            if at in self.by_position:
                self._add(at, Sighting("read by", event.who, value, event.at_ms, line.place))

    def _on_send(self, event: events.Send, line: Line) -> None:
        key = (event.topic, value_hash(event.value))
        if key not in self._values:
            return
        before = self.sends.get(key)
        if before is not None and before.value == event.value:
            raise InvalidHistory(
                f"{line.place}: the value {event.value!r} is sent twice to {event.topic} (first: {before.place}): "
                "values must be unique"
            )
        self.sends[key] = Sighting("sent by", event.who, event.value, event.at_ms, line.place)

    def first(self, at: At, verb: str = "") -> Sighting | None:
        return next((sighting for sighting in self.by_position[at] if sighting.verb.startswith(verb)), None)

    def sender(self, at: At) -> Sighting | None:
        known = self.first(at)
        return None if known is None else self.sends.get((at.partition.topic, value_hash(known.value)))


def _ended(
    event: events.TransactionCommitted | events.TransactionAborted | events.TransactionUnknown, line: Line
) -> str:
    verb = {
        events.TransactionCommitted: "committed",
        events.TransactionAborted: "aborted",
        events.TransactionUnknown: "ended with unknown outcome",
    }[type(event)]
    return f"{verb} {at_time(event.at_ms)} ({line.place})"


def findings_of(suspects: list[Suspect], evidence: Evidence) -> Iterator[Finding]:
    """The suspects that the evidence confirms, in words."""
    for suspect in suspects:
        finding = _WORDS[suspect.anomaly](suspect, evidence)
        if finding is not None:
            yield finding


def _finding(suspect: Suspect, at: At, known: Sighting | None, sentence: str) -> Finding:
    return Finding(
        anomaly=suspect.anomaly,
        topic=at.partition.topic,
        partition=at.partition.partition,
        offset=None if at.hashed else at.offset,
        value=None if known is None else known.value,
        who=None if known is None else known.who,
        at_ms=None if known is None else known.at_ms,
        sentence=sentence,
    )


def _inconsistent(suspect: Suspect, evidence: Evidence) -> Finding | None:
    at = suspect.at[0]
    by_value: dict[str, Sighting] = {}
    for sighting in evidence.by_position[at]:
        by_value.setdefault(sighting.value, sighting)
    if len(by_value) < 2:
        return None
    told = " and ".join(f"{sighting.value!r} {sighting.told()}" for sighting in by_value.values())
    sentence = f"{at.place} holds {len(by_value)} values: {told}."
    return _finding(suspect, at, next(iter(by_value.values())), sentence)


def _duplicate(suspect: Suspect, evidence: Evidence) -> Finding | None:
    first = suspect.at[0]
    known = evidence.first(first)
    same = [at for at in suspect.at if any(known and s.value == known.value for s in evidence.by_position[at])]
    if known is None or len(same) < 2:
        return None
    sender = evidence.sender(first)
    by = f" of producer {sender.who}" if sender else ""
    told = " and ".join(
        f"{at.place} ({sighting.told()})" for at in same if (sighting := evidence.first(at)) is not None
    )
    sentence = f"The value {known.value!r}{by} stands at {len(same)} offsets of {first.partition.topic}: {told}."
    return _finding(suspect, first, known, sentence)


def _aborted(suspect: Suspect, evidence: Evidence) -> Finding | None:
    at = suspect.at[0]
    known = evidence.first(at, "read by")
    if known is None:
        return None
    if suspect.transaction:
        transaction = evidence.transactions[suspect.transaction]
        why = f"transaction {transaction.name!r} of {transaction.who}, {transaction.ended}"
        sentence = f"{at.place}: {known.value!r} of {why}, was {known.told()}."
    else:
        failure = evidence.failures.get((at.partition.topic, value_hash(known.value)))
        why = f"whose send was {failure.told()}" if failure else "whose send failed"
        sentence = f"{at.place}: {known.value!r}, {why}, was {known.told()}."
    return _finding(suspect, at, known, sentence)


def _early(suspect: Suspect, evidence: Evidence) -> Finding | None:
    at = suspect.at[0]
    line = evidence.lines[suspect.event]
    assert isinstance(line.event, events.Poll)
    poll = line.event
    sender = evidence.sender(at)
    if sender is None or (at.offset, sender.value) not in poll.records:
        return None
    known = Sighting("read by", poll.who, sender.value, poll.at_ms, line.place)
    transaction = evidence.transactions[suspect.transaction]
    sentence = (
        f"{at.place}: {known.value!r} of transaction {transaction.name!r} of {transaction.who}, {transaction.ended}, "
        f"was {known.told()} as committed, before the commit was asked for."
    )
    return _finding(suspect, at, known, sentence)


def _lost(suspect: Suspect, evidence: Evidence) -> Finding | None:
    at = suspect.at[0]
    sightings = evidence.by_position[at]
    known = next(
        (
            each
            for each in sightings
            if each.verb.startswith("acknowledged") and value_hash(each.value) == suspect.hashed
        ),
        None,
    )
    if known is None:
        return None
    instead = evidence.first(at, "read by")
    if instead is None:
        seen = "readers passed the offset and none of them got it"
    else:
        seen = f"in its place {instead.value!r} was {instead.told()}, and no reader got {known.value!r} there"
    return _finding(suspect, at, known, f"{at.place}: {known.value!r} was {known.told()}; {seen}.")


def _unseen(suspect: Suspect, evidence: Evidence) -> Finding | None:
    at = suspect.at[0]
    known = evidence.first(at, "acknowledged")
    if known is None:
        return None
    drain = evidence.lines[suspect.event]
    assert isinstance(drain.event, events.Drained)
    sentence = (
        f"{at.place}: {known.value!r} was {known.told()}; "
        f"{drain.event.who} had read to the end {at_time(drain.event.at_ms)} ({drain.place}) and nobody got it."
    )
    return _finding(suspect, at, known, sentence)


def _vanished(suspect: Suspect, evidence: Evidence) -> Finding | None:
    at = suspect.at[0]
    known, got = evidence.first(at, "acknowledged"), evidence.first(at, "read by")
    if known is None or got is None:
        return None
    drain = evidence.lines[suspect.event]
    assert isinstance(drain.event, events.Drained)
    sentence = (
        f"{at.place}: {known.value!r} was {known.told()}, and {got.told()}; "
        f"{drain.event.who} had read to the end {at_time(drain.event.at_ms)} ({drain.place}), which was before it."
    )
    return _finding(suspect, at, known, sentence)


def _never_sent(suspect: Suspect, evidence: Evidence) -> Finding | None:
    at = suspect.at[0]
    known = evidence.first(at, "read by")
    if known is None:
        return None
    sentence = f"{at.place}: {known.value!r} was {known.told()}, but no producer sent it."
    return _finding(suspect, at, known, sentence)


def _skip(suspect: Suspect, evidence: Evidence) -> Finding | None:
    before, skipped, after = suspect.at
    known = evidence.first(skipped, "read by")
    line = evidence.lines[suspect.event]
    assert isinstance(line.event, events.Poll)
    if known is None:
        return None
    sentence = (
        f"{line.event.who} stood at {before.partition} offset {before.offset + 1}, got offset {after.offset} next "
        f"{at_time(line.event.at_ms)} ({line.place}) and so skipped offset {skipped.offset}: "
        f"{known.value!r}, {known.told()}."
    )
    return _finding(suspect, skipped, known, sentence)


def _backwards(suspect: Suspect, evidence: Evidence) -> Finding | None:
    before, after = suspect.at
    line = evidence.lines[suspect.event]
    assert isinstance(line.event, events.Poll)
    poll = line.event
    where = "within one poll" if suspect.within_poll else "though it had not moved its position"
    value = next((value for offset, value in poll.records if offset == after.offset), "?")
    known = Sighting("read by", poll.who, value, poll.at_ms, line.place)
    sentence = (
        f"{poll.who} got {after.partition} offset {after.offset} ({value!r}) after offset {before.offset}, {where}, "
        f"{at_time(poll.at_ms)} ({line.place})."
    )
    return _finding(suspect, after, known, sentence)


def _disordered(suspect: Suspect, evidence: Evidence) -> Finding | None:
    low, high = suspect.at
    later, earlier = evidence.sender(low), evidence.sender(high)
    if later is None or earlier is None:
        return None
    sentence = (
        f"{earlier.who} sent {earlier.value!r} {at_time(earlier.at_ms)} ({earlier.place}) before {later.value!r} "
        f"({later.place}), but {low.partition} has it at offset {high.offset}, behind offset {low.offset}."
    )
    return _finding(suspect, high, earlier, sentence)


def _torn(suspect: Suspect, evidence: Evidence) -> Finding | None:
    transaction = evidence.transactions[suspect.transaction]
    missing = ", ".join(
        f"{known.value!r} ({at.place})"
        for at in suspect.at
        if (known := evidence.first(at, "acknowledged")) is not None
    )
    sentence = (
        f"Of transaction {transaction.name!r} of {transaction.who}, {transaction.ended}, a part was read, but nobody "
        f"got {missing}."
    )
    return _finding(suspect, suspect.at[0], evidence.first(suspect.at[0], "acknowledged"), sentence)


_WORDS = {
    Anomaly.INCONSISTENT_OFFSETS: _inconsistent,
    Anomaly.LOST_WRITE: _lost,
    Anomaly.UNSEEN: _unseen,
    Anomaly.VANISHED: _vanished,
    Anomaly.TORN_TRANSACTION: _torn,
    Anomaly.ABORTED_READ: _aborted,
    Anomaly.EARLY_READ: _early,
    Anomaly.DUPLICATE: _duplicate,
    Anomaly.NEVER_SENT: _never_sent,
    Anomaly.POLL_SKIP: _skip,
    Anomaly.NON_MONOTONIC_POLL: _backwards,
    Anomaly.NON_MONOTONIC_SEND: _disordered,
}

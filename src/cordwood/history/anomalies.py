"""The anomalies of a history, and the judgement: pure functions from observations to suspects.

A suspect names offsets and event numbers, not values: the evidence (values, clients, times) is fetched from the history
afterwards. docs/history.md has the definitions. The promise of an acknowledgement depends on its kind: acks=all always,
acks=1 unless the leader was lost after the send began, acks=0 nothing.
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from cordwood.history.observations import Fate, Observations, Outcome, PartitionSeen, TopicSeen
from cordwood.history.observed_offsets import (
    ACKED,
    ACKED_BY_ALL,
    ACKED_BY_LEADER,
    NO_VALUE,
    PAGE_OFFSETS,
    READ,
    READ_AS_COMMITTED,
    Page,
)
from cordwood.model.identifiers import TopicPartition

BUCKET_POSITIONS = 2_000_000
"""The most hashes that the search for duplicates holds in a set at once."""

MISSING_LISTED = 10
"""The most missing records of a torn transaction that are named."""


class Anomaly(StrEnum):
    """The kinds of findings, worst first."""

    INCONSISTENT_OFFSETS = "inconsistent offsets"
    LOST_WRITE = "lost write"
    UNSEEN = "unseen"
    VANISHED = "vanished"
    TORN_TRANSACTION = "torn transaction"
    ABORTED_READ = "aborted read"
    EARLY_READ = "early read"
    DUPLICATE = "duplicate"
    NEVER_SENT = "never sent"
    POLL_SKIP = "poll skip"
    NON_MONOTONIC_POLL = "non-monotonic poll"
    NON_MONOTONIC_SEND = "non-monotonic send"


NO_OFFSET = -1


class At(NamedTuple):
    """One offset of one partition, or a record with an unknown offset, named by the hash of its value."""

    partition: TopicPartition
    offset: int
    hashed: int = NO_VALUE

    @property
    def place(self) -> str:
        return f"{self.partition}, offset unknown" if self.hashed else f"{self.partition} offset {self.offset}"


class Suspect(NamedTuple):
    """A possible anomaly. `event` is the number of the event that shows it, 0 if no single event does."""

    anomaly: Anomaly
    at: tuple[At, ...]
    event: int = 0
    within_poll: bool = False
    transaction: int = 0
    """Index of the transaction plus one."""
    hashed: int = NO_VALUE
    """The hash of the value that is meant, where the offset may have several."""


def suspects_in(seen: Observations) -> Iterator[Suspect]:
    """All suspects. Completes `seen`: finds the offsets of records without a known one where they were read."""
    seen_as_committed = bytearray(len(seen.outcomes))
    strays: list[tuple[At, int]] = []
    for partition, topic, observed in _partitions(seen):
        yield from _join_placeless(seen, partition, topic, observed, seen_as_committed, strays)
    repeated: set[int] = set()
    for name in sorted(seen.topics):
        yield from _duplicates(seen, name, repeated)
    for at, hashed in strays:
        if hashed not in repeated:
            yield Suspect(Anomaly.NEVER_SENT, (at,))
    torn: dict[int, list[At]] = {}
    for partition, topic, observed in _partitions(seen):
        yield from _conflicts(partition, observed)
        for suspect, transaction in chain(
            _missing(seen, partition, observed, seen_as_committed),
            _vanished(seen, partition, observed, seen_as_committed),
            _displaced(seen, partition, topic, observed, seen_as_committed),
            _missing_without_offset(seen, partition, topic, observed, seen_as_committed),
        ):
            if not transaction or not seen_as_committed[transaction - 1]:
                yield suspect
            elif len(torn.setdefault(transaction, [])) < MISSING_LISTED:
                torn[transaction] += suspect.at
        yield from _skips(seen, partition, observed, seen_as_committed)
        yield from _backwards(partition, observed)
        yield from _disordered_sends(seen, partition, observed)
    for early in seen.early_reads:
        at = At(early.partition, early.offset)
        yield Suspect(Anomaly.EARLY_READ, (at,), early.event, transaction=early.transaction)
    for transaction, missing in torn.items():
        yield Suspect(Anomaly.TORN_TRANSACTION, tuple(missing), transaction=transaction)


def _partitions(seen: Observations) -> Iterator[tuple[TopicPartition, TopicSeen, PartitionSeen]]:
    for name in sorted(seen.topics):
        topic = seen.topics[name]
        for number in sorted(topic.partitions):
            yield TopicPartition(name, number), topic, topic.partitions[number]


def _join_placeless(
    seen: Observations,
    partition: TopicPartition,
    topic: TopicSeen,
    observed: PartitionSeen,
    seen_as_committed: bytearray,
    strays: list[tuple[At, int]],
) -> Iterator[Suspect]:
    """Finds the senders of records that were read but not acknowledged, and aborted records that were read."""
    for base, page in observed.positions.pages():
        for index in range(PAGE_OFFSETS):
            marks = page.marks[index]
            if not marks & READ:
                continue
            if not marks & ACKED:
                hashed = page.value[index]
                placeless = topic.placeless.get(hashed)
                if placeless is None:
                    if topic.has_sends:
                        strays.append((At(partition, base + index), hashed))
                    continue
                page.producer[index] = placeless.producer + 1
                page.transaction[index] = placeless.transaction
                if seen.producers[placeless.producer].idempotent:
                    # Without idempotence the time of the write is unknown: the record may have been under way until
                    # now.
                    page.begun_at[index] = placeless.begun_at
                observed.acked_without_offset.pop(hashed, None)
                if placeless.fate is Fate.FAILED:
                    yield Suspect(Anomaly.ABORTED_READ, (At(partition, base + index),))
            if marks & READ_AS_COMMITTED and page.transaction[index]:
                transaction = page.transaction[index]
                if seen.outcomes[transaction - 1] == Outcome.ABORTED:
                    yield Suspect(Anomaly.ABORTED_READ, (At(partition, base + index),), transaction=transaction)
                else:
                    seen_as_committed[transaction - 1] = 1


def _duplicates(seen: Observations, name: str, repeated: set[int]) -> Iterator[Suspect]:
    """Finds values at two offsets of the topic, unless their producer retries without idempotence."""
    topic = seen.topics[name]
    pages = [
        (TopicPartition(name, number), base, page)
        for number in sorted(topic.partitions)
        for base, page in topic.partitions[number].positions.pages()
    ]
    buckets = 1 + len(pages) * PAGE_OFFSETS // BUCKET_POSITIONS
    found: set[int] = set()
    for bucket in range(buckets):
        once: set[int] = set()
        for _, _, page in pages:
            for hashed in page.value:
                if hashed % buckets == bucket and hashed != NO_VALUE:
                    if hashed in once:
                        found.add(hashed)
                    once.add(hashed)
    if not found:
        return
    repeated |= found
    places: dict[int, list[At]] = {}
    excused: set[int] = set()
    for partition, base, page in pages:
        for index, hashed in enumerate(page.value):
            if hashed in found:
                places.setdefault(hashed, []).append(At(partition, base + index))
                producer = page.producer[index]
                if producer and not _in_order(seen, producer - 1):
                    excused.add(hashed)
    for hashed, at in places.items():
        if hashed not in excused:
            yield Suspect(Anomaly.DUPLICATE, tuple(at))


def _in_order(seen: Observations, producer: int) -> bool:
    """True if the producer's records must be in the log once and in the order of sending."""
    declared = seen.producers[producer]
    return declared.idempotent or not declared.retries


def _conflicts(partition: TopicPartition, observed: PartitionSeen) -> Iterator[Suspect]:
    offsets = set(observed.conflicts)
    offsets.update(weak.offset for weak in observed.weak_conflicts if weak.begun_at > observed.leader_lost_at)
    for offset in sorted(offsets):
        yield Suspect(Anomaly.INCONSISTENT_OFFSETS, (At(partition, offset),))


def demanded(page: Page, index: int, observed: PartitionSeen) -> bool:
    """True if the acknowledgement of this offset, if there was one, promises that the record stays."""
    marks = page.marks[index]
    return bool(marks & ACKED_BY_ALL or (marks & ACKED_BY_LEADER and page.begun_at[index] > observed.leader_lost_at))


def _is_visible(seen: Observations, transaction: int, seen_as_committed: bytearray) -> bool:
    """True if a reader of committed records must get the records of this transaction (index plus one, or 0)."""
    if not transaction:
        return True
    outcome = seen.outcomes[transaction - 1]
    return outcome == Outcome.COMMITTED or (outcome != Outcome.ABORTED and bool(seen_as_committed[transaction - 1]))


def _missing(
    seen: Observations,
    partition: TopicPartition,
    observed: PartitionSeen,
    seen_as_committed: bytearray,
) -> Iterator[tuple[Suspect, int]]:
    """Lost and unseen writes, and their transactions."""
    covered = merged(observed.covered)
    drains = sorted(observed.drains)
    run, drain = 0, 0
    until, drained_at = 0, 0
    for base, page in observed.positions.pages():
        for index in range(PAGE_OFFSETS):
            marks = page.marks[index]
            if not marks & ACKED or marks & READ:
                continue
            offset = base + index
            if offset < observed.log_start_offset or not demanded(page, index, observed):
                continue
            transaction = page.transaction[index]
            if not _is_visible(seen, transaction, seen_as_committed):
                continue
            while run < len(covered) and covered[run][1] < offset:
                run += 1
            while drain < len(drains) and drains[drain].start <= offset:
                until, drained_at = max((until, drained_at), (drains[drain].until, drains[drain].event))
                drain += 1
            passed = run < len(covered) and covered[run][0] <= offset
            if not passed and page.acked_at[index] > until:
                continue
            at = (At(partition, offset),)
            if passed:
                yield Suspect(Anomaly.LOST_WRITE, at, hashed=page.value[index]), transaction
            else:
                yield Suspect(Anomaly.UNSEEN, at, event=drained_at), transaction


def _vanished(
    seen: Observations,
    partition: TopicPartition,
    observed: PartitionSeen,
    seen_as_committed: bytearray,
) -> Iterator[tuple[Suspect, int]]:
    """Acknowledged records that a reader got, and that lie behind the end which a later reader found."""
    drains = sorted(
        (drain.end, drain.until, drain.event)
        for drain in observed.drains
        if drain.end is not None and drain.end < observed.highest_read
    )
    drain = until = drained_at = 0
    for base, page in observed.positions.pages() if drains else ():
        for index in range(PAGE_OFFSETS):
            offset = base + index
            while drain < len(drains) and drains[drain][0] < offset:
                until, drained_at = max((until, drained_at), drains[drain][1:])
                drain += 1
            marks = page.marks[index]
            if not (marks & ACKED and marks & READ) or page.acked_at[index] > until:
                continue
            if offset < observed.log_start_offset or not demanded(page, index, observed):
                continue
            if _is_visible(seen, transaction := page.transaction[index], seen_as_committed):
                yield Suspect(Anomaly.VANISHED, (At(partition, offset),), event=drained_at), transaction


def _displaced(
    seen: Observations,
    partition: TopicPartition,
    topic: TopicSeen,
    observed: PartitionSeen,
    seen_as_committed: bytearray,
) -> Iterator[tuple[Suspect, int]]:
    """Lost writes at whose offset another value is known, and their transactions."""
    covered = merged(observed.covered)
    for (offset, hashed), was_read in sorted(observed.displaced.items()):
        producer, begun_at, transaction, _ = topic.placeless[hashed]
        stays = seen.producers[producer].acks == "all" or begun_at > observed.leader_lost_at
        passed = any(start <= offset <= end for start, end in covered)
        if was_read or not stays or not passed or offset < observed.log_start_offset:
            continue
        if _is_visible(seen, transaction, seen_as_committed):
            yield Suspect(Anomaly.LOST_WRITE, (At(partition, offset),), hashed=hashed), transaction


def _missing_without_offset(
    seen: Observations,
    partition: TopicPartition,
    topic: TopicSeen,
    observed: PartitionSeen,
    seen_as_committed: bytearray,
) -> Iterator[tuple[Suspect, int]]:
    """Unseen writes whose offset the producer was not told, and their transactions.

    Such a write may be at any offset: it is demanded only if no record was deleted, and only from readers that began at
    the start.
    """
    drains = [drain for drain in observed.drains if drain.start == 0]
    if not drains or observed.log_start_offset:
        return
    until, drained_at = max((drain.until, drain.event) for drain in drains)
    for hashed, acked_at in observed.acked_without_offset.items():
        producer, begun_at, transaction, _ = topic.placeless[hashed]
        stays = seen.producers[producer].acks == "all" or begun_at > observed.leader_lost_at
        if acked_at < until and stays and _is_visible(seen, transaction, seen_as_committed):
            yield Suspect(Anomaly.UNSEEN, (At(partition, NO_OFFSET, hashed),), event=drained_at), transaction


def merged(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same offsets as disjoint closed intervals in order."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def _skips(
    seen: Observations, partition: TopicPartition, observed: PartitionSeen, seen_as_committed: bytearray
) -> Iterator[Suspect]:
    """Gaps of a reader over a record that another reader got. A record that no reader got is a lost write, and reported
    once."""
    leaps = zip(observed.leap_before, observed.leap_after, observed.leap_reader, observed.leap_event, strict=True)
    for before, after, reader, event in leaps:
        only_committed = seen.readers[reader].isolation == "read_committed"
        start = max(before + 1, observed.log_start_offset)
        for offset, page, index in observed.positions.known_between(start, after):
            if not page.marks[index] & READ:
                continue
            if only_committed and not _is_visible(seen, page.transaction[index], seen_as_committed):
                continue
            at = (At(partition, before), At(partition, offset), At(partition, after))
            yield Suspect(Anomaly.POLL_SKIP, at, event)
            break


def _backwards(partition: TopicPartition, observed: PartitionSeen) -> Iterator[Suspect]:
    for step in observed.backwards:
        at = (At(partition, step.before), At(partition, step.after))
        yield Suspect(Anomaly.NON_MONOTONIC_POLL, at, step.event, step.within_poll)


def _disordered_sends(seen: Observations, partition: TopicPartition, observed: PartitionSeen) -> Iterator[Suspect]:
    """Records of one producer in another order than sent.

    A producer that retries without idempotence may reorder records in flight, but not a record that was acknowledged
    before the next send began.
    """
    latest: dict[int, tuple[int, int]] = {}
    in_order = [_in_order(seen, producer) for producer in range(len(seen.producers))]
    for base, page in observed.positions.pages():
        for index in range(PAGE_OFFSETS):
            marks = page.marks[index]
            begun_at = page.begun_at[index]
            if not begun_at or not (marks & READ or demanded(page, index, observed)):
                continue
            producer = page.producer[index] - 1
            not_before = begun_at if in_order[producer] else page.acked_at[index]
            known = latest.get(producer)
            if known is None or begun_at > known[0]:
                latest[producer] = (begun_at, base + index)
            if known is not None and not_before < known[0]:
                at = (At(partition, known[1]), At(partition, base + index))
                yield Suspect(Anomaly.NON_MONOTONIC_SEND, at)

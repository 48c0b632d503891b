"""FamilyDecide: a batch is committed or aborted as a whole, and every slot that was joined for it ends.

A commit is one append: the family's memory and the end of every winner. Either the whole append is in the log or
nothing of it. The ends of the other slots that were joined for this batch or an earlier one are in the append, too, as
far as there is room, and follow otherwise. If these get lost on the way, no writer can win with such slots any more,
and they end with the next decision or by time. Slots that were joined for a later batch are left alone, so that a late
or repeated decision does no harm.

Every end raises the slot's epoch. A writer that joined before can write no more: in partitions that it wrote to the
marker fences it, in all others the coordinator, which is asked before the first write of an epoch in a partition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from cordwood.model.errors import ErrorCode
from cordwood.model.families import MAX_PLAN_BYTES, slot_of
from cordwood.model.moment import Moment
from cordwood.transactions.families import JOINED, Family
from cordwood.transactions.families_leases import Leases
from cordwood.transactions.families_records import (
    NO_PLAN,
    NOTHING_DECIDED,
    Memory,
    Plan,
    family_key,
    family_record,
)
from cordwood.transactions.log_records import Record, record_of, removal_of
from cordwood.transactions.transaction import (
    EPOCH_BUMPED,
    NO_BATCH_ID,
    NO_PRODUCER_EPOCH,
    State,
    Transaction,
)

FORGET_AFTER_MS = 600_000
"""How long a family that may be forgotten still answers for its decisions: a client may ask again after a lost answer.
"""

_BATCH_OVERHEAD_BYTES = 61
_RECORD_OVERHEAD_BYTES = 24
"""The most bytes of a record's lengths, attributes and deltas."""

Append = list[Record]
"""Records that are written together: all of them or none."""


class Winner(NamedTuple):
    """A writer whose records are part of the batch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Asked(NamedTuple):
    batch_id: int
    commit: bool
    winners: Sequence[Winner] = ()
    """An abort that names writers ends only those: a failed task takes back only its own writes."""
    forget: bool = False
    """Whether the family may be forgotten: no client will ask about it again."""
    plan: Plan = NO_PLAN
    """The plan that a commit keeps with the batch."""


class Decision(NamedTuple):
    """A decision. It takes effect when its records are replayed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    already_decided: bool = False
    """Whether the batch was committed before, which stands."""
    last_batch_id: int = NO_BATCH_ID
    appends: Sequence[Append] = ()


def decide(
    family: Family, asked: Asked, *, max_bytes: int, wall_ms: int, plan_room_bytes: int = MAX_PLAN_BYTES
) -> Decision:
    """Commits or aborts a batch. A refusal changes nothing, and deciding again what is decided commits nothing. A plan
    whose text is longer than `plan_room_bytes`, or does not fit beside the winners, is kept without its text."""
    if family.has_decided(asked.batch_id):
        aborts = _aborts(family, asked, max_bytes, wall_ms)
        return Decision(already_decided=True, last_batch_id=family.last_batch_id, appends=aborts)
    if not asked.commit:
        return Decision(last_batch_id=family.last_batch_id, appends=_aborts(family, asked, max_bytes, wall_ms))
    if len(asked.plan.text) > plan_room_bytes:
        asked = asked._replace(plan=asked.plan._replace(text=b""))
    return _commit(family, asked, max_bytes, wall_ms)


def _commit(family: Family, asked: Asked, max_bytes: int, wall_ms: int) -> Decision:
    for winner in asked.winners:
        refusal = _refusal(family, asked.batch_id, winner)
        if refusal is not None:
            return refusal
    winning = {winner.transactional_id for winner in asked.winners}
    memory = Memory(asked.batch_id, wall_ms, asked.forget, asked.plan)
    decided: Append = [family_record(family.name, memory)]
    lost: Append = []
    for slot in family.joined(asked.batch_id):
        wins = slot.transactional_id in winning
        (decided if wins else lost).append(record_of(end(slot, commit=wins, wall_ms=wall_ms)))
    size = _BATCH_OVERHEAD_BYTES + sum(map(_size, decided))
    if size > max_bytes and asked.plan.text:
        size -= len(asked.plan.text)
        decided[0] = family_record(family.name, replace(memory, plan=asked.plan._replace(text=b"")))
    if size > max_bytes:
        return Decision(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The end of {len(decided) - 1} slots of family {family.name} takes {size} bytes, and a decision is one "
            f"record batch of at most {max_bytes} bytes: write with fewer tasks or to fewer partitions, or raise "
            "max.message.bytes of __transaction_state.",
            last_batch_id=family.last_batch_id,
        )
    return Decision(last_batch_id=asked.batch_id, appends=list(in_appends([*decided, *lost], max_bytes)))


def _refusal(family: Family, batch_id: int, winner: Winner) -> Decision | None:
    named = slot_of(winner.transactional_id)
    slot = None if named is None or named.family != family.name else family.slots.get(named.number)
    who = f"{winner.transactional_id} with producer id {winner.producer_id}, epoch {winner.producer_epoch},"
    if slot is None:
        message = f"{who} is no slot of family {family.name}."
    elif (slot.producer_id, slot.producer_epoch) != (winner.producer_id, winner.producer_epoch):
        message = (
            f"{who} was ended: it timed out or another writer decided. The slot has producer id {slot.producer_id}, "
            f"epoch {slot.producer_epoch} now, joined for batch {slot.batch_id}."
        )
    elif slot.state not in JOINED or slot.batch_id != batch_id:
        message = f"{who} was joined for batch {slot.batch_id}, not {batch_id}, and is {slot.state.label}."
    else:
        return None
    return Decision(ErrorCode.PRODUCER_FENCED, message, last_batch_id=family.last_batch_id)


def _aborts(family: Family, asked: Asked, max_bytes: int, wall_ms: int) -> list[Append]:
    """The records that abort slots. Readers do not see aborts, so they may be written in parts."""
    only = None if asked.commit or not asked.winners or family.has_decided(asked.batch_id) else set(asked.winners)
    ends = [
        record_of(end(slot, commit=False, wall_ms=wall_ms))
        for slot in family.joined(asked.batch_id)
        if only is None or Winner(slot.transactional_id, slot.producer_id, slot.producer_epoch) in only
    ]
    memory = family.memory or NOTHING_DECIDED
    if asked.forget and not memory.forgotten and (family.memory or family.slots):
        ends.append(family_record(family.name, replace(memory, decided_ms=wall_ms, forgotten=True)))
    return list(in_appends(ends, max_bytes))


def end(slot: Transaction, *, commit: bool, wall_ms: int) -> Transaction:
    """Ends a slot. A slot without records needs no markers, and is free at once."""
    if slot.state is State.ONGOING:
        state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    else:
        state = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
    return replace(
        slot,
        state=slot.moved_to(state),
        # No client gets this epoch. When there is no higher one to join with, the slot gets a new producer id.
        producer_epoch=slot.producer_epoch + 1,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        client_version=EPOCH_BUMPED,
        updated_ms=wall_ms,
    )


def in_appends(records: Sequence[Record], max_bytes: int) -> Iterator[Append]:
    """Groups the records into as few appends as their size allows."""
    append: Append = []
    left = 0
    for record in records:
        if append and left < _size(record):
            yield append
            append = []
        if not append:
            left = max_bytes - _BATCH_OVERHEAD_BYTES
        append.append(record)
        left -= _size(record)
    if append:
        yield append


def _size(record: Record) -> int:
    key, value = record
    return len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES


# Time


def time_out(family: Family, leases: Leases, now: Moment) -> list[Transaction]:
    """Ends the slots of batches that no writer has renewed within their timeout, whether or not they wrote."""
    return [
        end(slot, commit=False, wall_ms=now.wall_ms)
        for _, slot in sorted(family.slots.items())
        if slot.state in JOINED
        and leases.seen_ms(family.name, slot.batch_id, now.boot_ms) + slot.timeout_ms <= now.boot_ms
    ]


def forget(family: Family, wall_ms: int) -> list[Record]:
    """Tombstones for a family and its slots, once no client can ask about it any more."""
    memory = family.memory
    if memory is None or not memory.forgotten or not family.at_rest or memory.decided_ms + FORGET_AFTER_MS > wall_ms:
        return []
    slots: list[Record] = [removal_of(slot) for _, slot in sorted(family.slots.items())]
    # The family's record goes last: if the tombstones are cut off in between, the family still answers for the batch.
    return [*slots, (family_key(family.name), None)]

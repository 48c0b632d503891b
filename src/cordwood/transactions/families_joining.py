"""FamilyJoin: a writer gets a slot of the family for a batch, unless that batch is decided."""

from dataclasses import replace
from typing import NamedTuple

from cordwood.model.errors import ErrorCode
from cordwood.model.families import slot_id
from cordwood.transactions.beginning import Beginning, init_producer
from cordwood.transactions.families import Family
from cordwood.transactions.log_records import Record, record_of
from cordwood.transactions.transaction import NO_BATCH_ID, NewProducerId, Transaction

MAX_SLOTS = 10_000
"""The most slots of one family. Every attempt at a task of a batch has a slot until the batch is decided."""


class Joined(NamedTuple):
    """The answer to a writer that joins. `slot` takes effect when its record is replayed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    decided: bool = False
    """Whether the batch is decided and needs no writer any more."""
    last_batch_id: int = NO_BATCH_ID
    slot: Transaction | None = None

    @property
    def appends(self) -> list[list[Record]]:
        return [] if self.slot is None else [[record_of(self.slot)]]


def join(family: Family, batch_id: int, timeout_ms: int, new_producer_id: NewProducerId, wall_ms: int) -> Joined:
    last_batch_id = family.last_batch_id
    if family.has_decided(batch_id):
        return Joined(decided=True, last_batch_id=last_batch_id)
    number = family.free_slot()
    if number >= MAX_SLOTS:
        return Joined(
            ErrorCode.POLICY_VIOLATION,
            f"Family {family.name} has {MAX_SLOTS} slots in use, which is the most: write with fewer tasks.",
            last_batch_id=last_batch_id,
        )
    asked = Beginning(slot_id(family.name, number), timeout_ms)
    step = init_producer(family.slots.get(number), asked, new_producer_id, wall_ms)
    assert step.error is ErrorCode.NONE, "a free slot has nothing open"
    assert step.changed is not None
    return Joined(last_batch_id=last_batch_id, slot=replace(step.changed, batch_id=batch_id))

"""The families that live in one partition of __transaction_state: one decision over many writers.

A slot is joined (EMPTY, then ONGOING once a record is written), ended (PREPARE_*, until the markers are written), and
then free (COMPLETE_*) for the next writer, under a higher epoch. A family always remembers the last decided batch. All
state comes from replayed records; transitions are in `families_joining` and `families_deciding`.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from cordwood.model.families import Slot
from cordwood.transactions.families_records import NOTHING_DECIDED, Memory
from cordwood.transactions.transaction import FREE, PREPARED, State, Transaction
from cordwood.transactions.transaction import JOINED as JOINED


class Family:
    """One family: its last decision, and its slots."""

    __slots__ = ("_free", "memory", "name", "slots")

    def __init__(self, name: str) -> None:
        self.name = name
        self.memory: Memory | None = None
        self.slots: dict[int, Transaction] = {}
        self._free: list[int] = []
        """Numbers of free slots, in order."""

    @property
    def last_batch_id(self) -> int:
        return (self.memory or NOTHING_DECIDED).last_batch_id

    def has_decided(self, batch_id: int) -> bool:
        return batch_id <= self.last_batch_id

    def free_slot(self) -> int:
        """The lowest slot number that is not in use, so that slots and their producer ids stay few."""
        if self._free:
            return self._free[0]
        count = len(self.slots)
        if count not in self.slots:
            return count
        return next(number for number in range(count) if number not in self.slots)

    def joined(self, up_to_batch_id: int) -> list[Transaction]:
        """Slots that writers may use for this batch or an earlier one."""
        return self._those(JOINED, up_to_batch_id)

    def completing(self, up_to_batch_id: int) -> list[Transaction]:
        """Slots whose end is decided and whose markers are on their way."""
        return self._those(PREPARED, up_to_batch_id)

    def _those(self, states: tuple[State, ...], up_to_batch_id: int) -> list[Transaction]:
        return [
            slot for _, slot in sorted(self.slots.items()) if slot.state in states and slot.batch_id <= up_to_batch_id
        ]

    @property
    def at_rest(self) -> bool:
        return len(self._free) == len(self.slots)

    def replay_slot(self, number: int, slot: Transaction | None) -> None:
        before = self.slots.pop(number, None)
        was_free = before is not None and before.state in FREE
        is_free = slot is not None and slot.state in FREE
        if slot is not None:
            self.slots[number] = slot
        if is_free and not was_free:
            insort(self._free, number)
        elif was_free and not is_free:
            del self._free[bisect_left(self._free, number)]


class Families:
    """Families by name: those with a memory or with slots."""

    def __init__(self) -> None:
        self._by_name: dict[str, Family] = {}
        self.plan_bytes = 0
        """Bytes of the plans that all families keep."""

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def names(self) -> list[str]:
        """The names of all families, sorted."""
        return sorted(self._by_name)

    def __iter__(self) -> Iterator[Family]:
        return iter([self._by_name[name] for name in self.names()])

    def get(self, name: str) -> Family:
        """The family; an unknown one has decided nothing and has no slots."""
        return self._by_name.get(name) or Family(name)

    def replay_memory(self, name: str, memory: Memory | None) -> None:
        family = self._by_name.setdefault(name, Family(name))
        self.plan_bytes += _plan_bytes(memory) - _plan_bytes(family.memory)
        family.memory = memory
        self._forget_if_empty(family)

    def replay_slot(self, slot: Slot, transaction: Transaction | None) -> None:
        family = self._by_name.setdefault(slot.family, Family(slot.family))
        family.replay_slot(slot.number, transaction)
        self._forget_if_empty(family)

    def _forget_if_empty(self, family: Family) -> None:
        if family.memory is None and not family.slots:
            del self._by_name[family.name]


def _plan_bytes(memory: Memory | None) -> int:
    return 0 if memory is None else len(memory.plan.text)

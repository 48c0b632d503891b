"""The transactional ids that live in one partition of __transaction_state.

State comes only from replayed records. Transitions are in modules of their own: `beginning`, `adding`, `ending`, and
`families_*` for what concerns many ids at once.
"""

from collections.abc import Callable, Iterable, Iterator

from cordwood.model.families import slot_of
from cordwood.model.moment import Moment
from cordwood.transactions.families import Families
from cordwood.transactions.families_records import FAMILY_KEY_TYPE, decode_family_key, decode_memory
from cordwood.transactions.log_records import KEY_TYPE, Record, decode_key, decode_value, record_type, removal_of
from cordwood.transactions.transaction import AT_REST, PREPARED, State, Transaction


class Transactions:
    """State of one partition of __transaction_state."""

    def __init__(self) -> None:
        self._by_id: dict[str, Transaction] = {}
        self._begun_ms: dict[str, int] = {}
        """When each open transaction began, on the boot clock. Soft state: the record has the wall clock's time."""
        self.families = Families()

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Replays a record of the log into state. Unknown record types are skipped."""
        kind = record_type(key)
        if kind == FAMILY_KEY_TYPE:
            self.families.replay_memory(decode_family_key(key), None if value is None else decode_memory(value))
        if kind != KEY_TYPE:
            return
        transactional_id = decode_key(key)
        transaction = None if value is None else decode_value(transactional_id, value)
        if transaction is None:
            self._by_id.pop(transactional_id, None)
        else:
            self._by_id[transactional_id] = transaction
        if transaction is None or transaction.state is not State.ONGOING:
            self._begun_ms.pop(transactional_id, None)
        slot = slot_of(transactional_id)
        if slot is not None:
            self.families.replay_slot(slot, transaction)

    def get(self, transactional_id: str) -> Transaction | None:
        return self._by_id.get(transactional_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Transaction]:
        return iter([self._by_id[transactional_id] for transactional_id in sorted(self._by_id)])

    def ids(self) -> list[str]:
        """All transactional ids, in the order of the log: sorting very many takes too long."""
        return list(self._by_id)

    # Each query looks at the ids in `among`, or at all ids.

    def prepared(self, among: Iterable[str] | None = None) -> list[Transaction]:
        """Transactions that are decided and wait for their markers."""
        return self._those(lambda each: each.state in PREPARED, among)

    def timed_out(self, now: Moment, among: Iterable[str] | None = None) -> list[Transaction]:
        """Transactions that are open for longer than their timeout. Slots of families have leases instead."""
        return self._those(
            lambda each: (
                each.state is State.ONGOING
                and self.begun_ms(each, now) + each.timeout_ms <= now.boot_ms
                and slot_of(each.transactional_id) is None
            ),
            among,
        )

    def begun_ms(self, transaction: Transaction, now: Moment) -> int:
        """When an open transaction began, on the boot clock; by its recorded start, at the first look after loading."""
        age_ms = max(0, now.wall_ms - transaction.started_ms)
        return self._begun_ms.setdefault(transaction.transactional_id, now.boot_ms - age_ms)

    def expired(self, wall_ms: int, expiration_ms: int, among: Iterable[str] | None = None) -> list[Record]:
        """Tombstones for ids that no producer has used for the expiration time. A joined slot counts as used."""
        unused = self._those(
            lambda each: (
                each.state in AT_REST
                and each.updated_ms + expiration_ms <= wall_ms
                and not (each.state is State.EMPTY and slot_of(each.transactional_id) is not None)
            ),
            among,
        )
        return [removal_of(each) for each in unused]

    def _those(self, wanted: Callable[[Transaction], bool], among: Iterable[str] | None) -> list[Transaction]:
        # Sorted after filtering: mostly few of very many remain.
        known = self._by_id.values() if among is None else self._known(among)
        return sorted(filter(wanted, known), key=lambda each: each.transactional_id)

    def _known(self, transactional_ids: Iterable[str]) -> Iterator[Transaction]:
        for transactional_id in transactional_ids:
            if (found := self._by_id.get(transactional_id)) is not None:
                yield found

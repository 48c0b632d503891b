"""The families' state machine on a table: a log, what was replayed from it, and requests that go through both.

A request that changes something is appended and replayed before it is answered. `restart` begins again with the log
and nothing else.
"""

from collections.abc import Sequence

from tests.moments import at

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.transactions.adding import add_partitions
from cordwood.transactions.ending import complete
from cordwood.transactions.families import Family
from cordwood.transactions.families_deciding import Asked, Decision, Winner, decide, forget, in_appends, time_out
from cordwood.transactions.families_joining import Joined, join
from cordwood.transactions.families_leases import Leases
from cordwood.transactions.log_records import Record, record_of
from cordwood.transactions.transaction import EPOCH_BUMPED, Transaction
from cordwood.transactions.transactional_ids import Transactions

NAME = "query"
MAX_BYTES = 1 << 20


def winner(slot: Transaction) -> Winner:
    return Winner(slot.transactional_id, slot.producer_id, slot.producer_epoch)


class Table:
    def __init__(self) -> None:
        self.log: list[Record] = []
        self.machine = Transactions()
        self.leases = Leases()
        self.now_ms = 1_000
        self.producer_ids_given = 0

    @property
    def family(self) -> Family:
        return self.machine.families.get(NAME)

    def append(self, records: Sequence[Record]) -> None:
        for key, value in records:
            self.log.append((key, value))
            self.machine.replay(key, value)

    def restart(self) -> None:
        self.machine = Transactions()
        for key, value in self.log:
            self.machine.replay(key, value)
        self.leases = Leases()

    def compact(self) -> None:
        """Of every key its last record stays, where it was; tombstones go too."""
        last = {key: place for place, (key, _) in enumerate(self.log)}
        self.log = [
            (key, value) for place, (key, value) in enumerate(self.log) if last[key] == place and value is not None
        ]

    def new_producer_id(self) -> int:
        self.producer_ids_given += 1
        return 100 + self.producer_ids_given

    # Requests

    def asks_to_join(self, batch_id: int, timeout_ms: int = 60_000) -> Joined:
        joined = join(self.family, batch_id, timeout_ms, self.new_producer_id, self.now_ms)
        if joined.slot is not None:
            self.leases.joined(NAME, batch_id, self.now_ms)
        for append in joined.appends:
            self.append(append)
        return joined

    def joins(self, batch_id: int, timeout_ms: int = 60_000) -> Transaction:
        slot = self.asks_to_join(batch_id, timeout_ms).slot
        assert slot is not None
        return slot

    def writes(self, slot: Transaction, partition: int = 0) -> ErrorCode:
        """The first write to a partition, for which the coordinator is asked."""
        step = add_partitions(
            self.machine.get(slot.transactional_id),
            slot.producer_id,
            slot.producer_epoch,
            [TopicPartition("events", partition)],
            client_version=EPOCH_BUMPED,
            wall_ms=self.now_ms,
            max_partitions=1000,
        )
        if step.changed is not None:
            self.append([record_of(step.changed)])
        return step.error

    def joins_and_writes(self, batch_id: int, timeout_ms: int = 60_000) -> Transaction:
        slot = self.joins(batch_id, timeout_ms)
        assert self.writes(slot) is ErrorCode.NONE
        return slot

    def asks_to_decide(self, asked: Asked, max_bytes: int = MAX_BYTES) -> Decision:
        decision = decide(self.family, asked, max_bytes=max_bytes, wall_ms=self.now_ms)
        for append in decision.appends:
            self.append(append)
        return decision

    def commits(self, batch_id: int, *winners: Transaction, forget: bool = False) -> Decision:
        return self.asks_to_decide(Asked(batch_id, True, [winner(each) for each in winners], forget))

    def aborts(self, batch_id: int, *only: Transaction, forget: bool = False) -> Decision:
        return self.asks_to_decide(Asked(batch_id, False, [winner(each) for each in only], forget))

    # The coordinator's own doing

    def marks(self) -> None:
        """The markers of everything that is decided are written."""
        for slot in self.machine.prepared():
            self.append([record_of(complete(slot, self.now_ms))])

    def looks(self) -> list[str]:
        """What timed out is ended; the ids of these slots."""
        ended = time_out(self.family, self.leases, at(self.now_ms))
        self.append([record_of(slot) for slot in ended])
        return [slot.transactional_id for slot in ended]

    def forgets(self) -> int:
        records = forget(self.family, self.now_ms)
        for append in in_appends(records, MAX_BYTES):
            self.append(append)
        return len(records)

    def slot(self, transactional_id: str) -> Transaction:
        found = self.machine.get(transactional_id)
        assert found is not None
        return found

"""Transaction families on this node: gives out slots, decides batches, and answers when readers see a whole batch.

A decision is written and committed before the first marker. The answer waits until all markers are committed, also the
markers of earlier decisions. A client whose wait times out asks again and hears that the batch is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from cordwood.model.errors import ErrorCode
from cordwood.model.families import coordinator_key
from cordwood.node.coordinators.coordinator_log import Done, ShardState
from cordwood.node.coordinators.producer_ids import ProducerIds
from cordwood.node.coordinators.transaction_completion import Completions
from cordwood.node.coordinators.transaction_shards import LedTransactions, TransactionShards, WaitingDecision
from cordwood.node.loop.loop import Loop
from cordwood.transactions import families_deciding, families_joining
from cordwood.transactions.families import JOINED, Families, Family
from cordwood.transactions.families_deciding import Asked, Decision, in_appends
from cordwood.transactions.families_joining import Joined
from cordwood.transactions.families_leases import Batch
from cordwood.transactions.families_records import NOTHING_DECIDED, Memory
from cordwood.transactions.log_records import Record, record_of
from cordwood.transactions.transaction import NeedsProducerId, NewProducerId, no_producer_id

MAX_FAMILIES = 10_000
"""The most families in one partition of __transaction_state."""

SLOTS_PER_STEP = 500

MAX_PLANS_BYTES = 4 << 20
"""The most bytes of plans that the families in one partition of __transaction_state keep. Beyond that, only digests are
kept."""

_FULL = f"There are {MAX_FAMILIES} families already; `cordwood transaction forget-family` removes some."


class Standing(NamedTuple):
    """The state of a family towards a batch: decided or not."""

    error: ErrorCode
    decided: bool = False
    last_batch_id: int = -1


class FamilyCoordinator:
    def __init__(
        self, loop: Loop, shards: TransactionShards, completions: Completions, producer_ids: ProducerIds
    ) -> None:
        self._loop = loop
        self._shards = shards
        self._completions = completions
        self._producer_ids = producer_ids
        self._log = shards.log

    def unloaded(self, shard: LedTransactions) -> None:
        """Sends decisions that wait for markers to another coordinator."""
        for each in dict.fromkeys(chain.from_iterable(shard.waiting_decisions.values())):
            self._end(shard, each, ErrorCode.NOT_COORDINATOR)

    # Requests

    def join(self, name: str, batch_id: int, timeout_ms: int, done: Callable[[Joined], None]) -> None:
        """Calls back when the record that gives the writer its slot, or that decides the batch, is committed."""

        def loaded(shard: LedTransactions) -> None:
            self._join(shard, name, batch_id, timeout_ms, no_producer_id, done)

        self._with_shard(name, loaded, lambda error: done(Joined(error)))

    def _join(
        self,
        shard: LedTransactions,
        name: str,
        batch_id: int,
        timeout_ms: int,
        new_producer_id: NewProducerId,
        done: Callable[[Joined], None],
    ) -> None:
        if shard.state is ShardState.UNLOADED:
            done(Joined(ErrorCode.NOT_COORDINATOR))
            return
        if _is_full(shard, name):
            done(Joined(ErrorCode.POLICY_VIOLATION, _FULL))
            return
        family = shard.machine.families.get(name)
        try:
            joined = families_joining.join(family, batch_id, timeout_ms, new_producer_id, self._loop.now.wall_ms)
        except NeedsProducerId:

            def allocated(producer_id: int | ErrorCode) -> None:
                if isinstance(producer_id, ErrorCode):
                    done(Joined(producer_id))
                else:
                    # Other requests were served in the meantime, so the join is decided anew.
                    self._join(shard, name, batch_id, timeout_ms, lambda: producer_id, done)

            self._producer_ids.next(allocated)
            return
        if joined.slot is not None:
            shard.leases.joined(name, batch_id, self._loop.now.boot_ms)

        def committed(error: ErrorCode) -> None:
            done(joined if error is ErrorCode.NONE else Joined(error))

        self._write(shard, joined.appends, committed)

    def renew(self, name: str, batch_id: int, done: Callable[[Standing], None]) -> None:
        """Renews the leases of all writers that joined for this batch."""

        def loaded(shard: LedTransactions) -> None:
            family = shard.machine.families.get(name)
            standing = Standing(ErrorCode.NONE, family.has_decided(batch_id), family.last_batch_id)
            if not standing.decided:
                shard.leases.renew(name, batch_id, self._loop.now.boot_ms)

            def committed(error: ErrorCode) -> None:
                done(standing if error is ErrorCode.NONE else Standing(error))

            self._log.when_committed(shard, committed)

        self._with_shard(name, loaded, lambda error: done(Standing(error)))

    def decide(self, name: str, asked: Asked, timeout_ms: int, done: Callable[[Decision], None]) -> None:
        """Calls back when readers see the whole batch, or no record of it if the batch was aborted."""

        def loaded(shard: LedTransactions) -> None:
            family = shard.machine.families.get(name)
            max_bytes = shard.partition.settings.max_message_bytes
            decision = families_deciding.decide(
                family,
                asked,
                max_bytes=max_bytes,
                wall_ms=self._loop.now.wall_ms,
                plan_room_bytes=_plan_room_bytes(shard.machine.families, family),
            )
            if decision.appends and _is_full(shard, name):
                decision = Decision(ErrorCode.POLICY_VIOLATION, _FULL)
            if decision.error is not ErrorCode.NONE:
                # The refusal may rest on records that are never committed.
                self._log.when_committed(
                    shard, lambda error: done(decision if error is ErrorCode.NONE else Decision(error))
                )
                return

            def marked(error: ErrorCode) -> None:
                done(decision if error is ErrorCode.NONE else _unfinished(decision, error))

            def committed(error: ErrorCode) -> None:
                slots = [slot.transactional_id for slot in shard.machine.families.get(name).completing(asked.batch_id)]
                if error is not ErrorCode.NONE:
                    marked(error)
                else:
                    self._when_marked(shard, slots, timeout_ms, marked)
                # An appended decision holds once it is committed, even if the commit takes longer than the client
                # waits.
                self._completions.complete_all(shard, slots)

            self._write(shard, decision.appends, committed)

        self._with_shard(name, loaded, lambda error: done(Decision(error)))

    def recall(self, name: str, done: Callable[[ErrorCode, Memory | None], None]) -> None:
        """Calls back with a family's memory once it is committed; None if the family has decided nothing."""

        def loaded(shard: LedTransactions) -> None:
            memory = shard.machine.families.get(name).memory
            self._log.when_committed(shard, lambda error: done(error, None if error else memory))

        self._with_shard(name, loaded, lambda error: done(error, None))

    # Appending and waiting

    def _with_shard(self, name: str, loaded: Callable[[LedTransactions], None], failed: Done) -> None:
        self._shards.with_shard(coordinator_key(name), loaded, failed)

    def _write(self, shard: LedTransactions, appends: Sequence[list[Record]], done: Done) -> None:
        """Calls back once, when all appends, or without appends the state that was read, are committed."""
        if not appends:
            self._log.when_committed(shard, done)
            return
        left, worst = len(appends), ErrorCode.NONE

        def one_done(error: ErrorCode) -> None:
            nonlocal left, worst
            left -= 1
            worst = error if error is not ErrorCode.NONE else worst
            if not left:
                done(worst)

        for append in appends:
            self._log.write(shard, append, one_done)

    def _when_marked(self, shard: LedTransactions, slots: list[str], timeout_ms: int, done: Done) -> None:
        """Calls back when all markers of these slots are committed, or with REQUEST_TIMED_OUT after `timeout_ms`."""
        if not slots:
            done(ErrorCode.NONE)
            return
        waiting = WaitingDecision(set(slots), done)
        for slot in slots:
            shard.waiting_decisions.setdefault(slot, []).append(waiting)

        waiting.timer = self._loop.after(timeout_ms, lambda _: self._end(shard, waiting, ErrorCode.REQUEST_TIMED_OUT))

    @staticmethod
    def _end(shard: LedTransactions, waiting: WaitingDecision, error: ErrorCode) -> None:
        """Ends a wait before all markers are committed."""
        for slot in waiting.slots:
            others = shard.waiting_decisions[slot]
            others.remove(waiting)
            if not others:
                del shard.waiting_decisions[slot]
        assert waiting.timer is not None
        waiting.timer.cancel()
        waiting.done(error)

    @staticmethod
    def marked(shard: LedTransactions, transactional_id: str) -> None:
        """Answers decisions that waited for the markers of this id's transaction: the markers are committed."""
        for waiting in shard.waiting_decisions.pop(transactional_id, ()):
            waiting.slots.discard(transactional_id)
            if not waiting.slots:
                assert waiting.timer is not None
                waiting.timer.cancel()
                waiting.done(ErrorCode.NONE)

    # Time

    def look(self, shard: LedTransactions) -> Iterator[None]:
        """Ends slots whose leases have run out, in steps. The caller writes the markers of slots with records."""
        leases = shard.leases
        known = leases.batches()
        in_use: set[Batch] = set()
        for families in self._some_at_a_time(shard):
            now = self._loop.now
            ended: list[Record] = []
            for family in families:
                ended += map(record_of, families_deciding.time_out(family, leases, now))
                in_use.update((family.name, slot.batch_id) for slot in family.slots.values() if slot.state in JOINED)
            self._write_in_parts(shard, ended)
            yield
        leases.forget(batch for batch in known if batch not in in_use)

    def forget(self, shard: LedTransactions) -> Iterator[None]:
        """Removes families that may be forgotten, in steps."""
        for families in self._some_at_a_time(shard):
            wall_ms = self._loop.now.wall_ms
            forgotten = [record for family in families for record in families_deciding.forget(family, wall_ms)]
            self._write_in_parts(shard, forgotten)
            yield

    @staticmethod
    def _some_at_a_time(shard: LedTransactions) -> Iterator[list[Family]]:
        """All families of a shard, in groups with about SLOTS_PER_STEP slots."""
        some: list[Family] = []
        slots = 0
        for name in shard.machine.families.names():
            family = shard.machine.families.get(name)
            some.append(family)
            slots += 1 + len(family.slots)
            if slots >= SLOTS_PER_STEP:
                yield some
                some, slots = [], 0
        if some:
            yield some

    def _write_in_parts(self, shard: LedTransactions, records: list[Record]) -> None:
        for append in in_appends(records, shard.partition.settings.max_message_bytes):
            self._log.write(shard, append, lambda error: None)


def _is_full(shard: LedTransactions, name: str) -> bool:
    """True if the family is new and its shard has no place for another family."""
    families = shard.machine.families
    return name not in families and len(families) >= MAX_FAMILIES


def _plan_room_bytes(families: Families, family: Family) -> int:
    own = len((family.memory or NOTHING_DECIDED).plan.text)
    return max(0, MAX_PLANS_BYTES - families.plan_bytes + own)


def _unfinished(decision: Decision, error: ErrorCode) -> Decision:
    """The answer for a batch that may be decided but is not yet visible to every reader. Asking again is safe."""
    return Decision(error, "The batch is not complete yet: ask again.", decision.already_decided)

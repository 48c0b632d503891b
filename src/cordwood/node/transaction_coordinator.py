"""The transaction coordinator on this node: one `Transactions` per partition of __transaction_state.

A decision is written and committed before its first marker, all markers are committed before the completion is written,
and a start completes the transactions that were decided before the stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cordwood.model.coordination import is_too_long, transaction_partition
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC, TopicPartition
from cordwood.model.moment import Moment
from cordwood.node.coordinator_log import CoordinatorLog, Done, Shard, Writer
from cordwood.node.family_coordinator import FamilyCoordinator
from cordwood.node.partition import Partition
from cordwood.node.timers import Timer
from cordwood.node.transaction_markers import Ending, write_markers
from cordwood.records.control import TransactionMarker
from cordwood.transactions import adding, beginning, ending
from cordwood.transactions.log_records import record_of
from cordwood.transactions.transaction import (
    PREPARED,
    NeedsProducerId,
    NewProducerId,
    State,
    Step,
    Transaction,
    no_producer_id,
)
from cordwood.transactions.transactions import Transactions

if TYPE_CHECKING:
    from cordwood.node.node import Node

RETRY_AFTER_MS = 500
LONGEST_RETRY_MS = 10_000
"""A failed completion is tried again after RETRY_AFTER_MS, then after twice as long each time, up to LONGEST_RETRY_MS:
a full disk stays full for a while, and thousands of transactions may wait for it."""

PATIENCE_MS = 100
"""How long a request waits for the last transaction's markers before it is told CONCURRENT_TRANSACTIONS: clients pause
before they ask again, mostly for longer than the markers take."""

LOOKED_AT_PER_STEP = 250
ENDED_PER_STEP = 100
"""The most transactional ids that one turn checks by the clock, and the most partitions of transactions that it
ends."""

MARKERS_AT_ONCE = 200
"""The most markers written in one turn for a decision over many ids: the loop serves requests in between."""

_GONE_FOR_GOOD = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH)
"""Outcomes of a marker after which the partition has no open part of the transaction."""

Stepped = Callable[[Step], None]
Decide = Callable[[Transaction | None, NewProducerId, int], Step]


class TransactionCoordinator:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.log = CoordinatorLog(node, TRANSACTION_STATE_TOPIC, Transactions, after_unloading=self._unloaded)
        self.families = FamilyCoordinator(node, self)
        self._completing: set[str] = set()
        """Transactional ids whose markers are being written, or will be tried again."""
        self._marked: dict[str, frozenset[TopicPartition]] = {}
        """Partitions with committed markers, by incomplete id: another try must not write these again."""
        self._pause_ms: dict[str, int] = {}
        """The last pause before another try, for each id that is not complete yet."""
        self._looks: set[tuple[Callable[[Shard[Transactions]], Iterator[None]], Shard[Transactions]]] = set()
        """Unfinished checks by the clock, with their shards."""
        self._patient: dict[str, list[Timer]] = {}
        """Requests that wait for a completion, by transactional id. Each is decided again after the completion, or
        after PATIENCE_MS."""

    def when_topic_exists(self, done: Callable[[ProtocolError | None], None]) -> None:
        self.log.when_topic_exists(done)

    def schedule(self, now: Moment) -> None:
        """Starts the timers. The first look completes transactions that were decided before the broker stopped."""
        settings = self._node.settings
        timers = self._node.timers
        timers.at(now.boot_ms, self._look_at_all)
        timers.at(
            now.boot_ms + settings.transaction_remove_expired_transaction_cleanup_interval_ms, self._forget_unused
        )

    def deposed(self, partition: Partition) -> None:
        """Gives up the transactions of a partition of __transaction_state: its leadership ended."""
        self.log.deposed(partition)

    def _unloaded(self, shard: Shard[Transactions]) -> None:
        """Leaves completions to the next leader, and sends waiting requests to another coordinator."""
        for transactional_id in shard.machine.ids():
            self._completing.discard(transactional_id)
            self._marked.pop(transactional_id, None)
            self._pause_ms.pop(transactional_id, None)
            for timer in self._patient.pop(transactional_id, ()):
                timer.fire(self._node.now)
        self.families.unloaded(shard)

    # Requests

    def init_producer_id(self, asked: beginning.Beginning, done: Stepped) -> None:
        def decide(found: Transaction | None, new_producer_id: NewProducerId, wall_ms: int) -> Step:
            if found is None and self._is_full():
                return Step(ErrorCode.POLICY_VIOLATION)
            return beginning.init_producer(found, asked, new_producer_id, wall_ms)

        self._step(asked.transactional_id, decide, done)

    def _is_full(self) -> bool:
        most = self._node.settings.transactional_ids_max
        if sum(len(shard.machine) for shard in self.log.loaded_shards()) < most:
            return False
        # The answer has no room for a reason.
        self._node.maintenance.report(
            logging.WARNING,
            f"a new transactional id is refused: this broker has transactional.ids.max={most} already. Ids that no "
            "producer uses are forgotten after transactional.id.expiration.ms",
        )
        return True

    def add_partitions(
        self,
        transactional_id: str,
        writer: Writer,
        partitions: Collection[TopicPartition],
        client_version: int,
        done: Done,
    ) -> None:
        """Calls back when the record that adds the partitions to the transaction is committed."""

        def decide(found: Transaction | None, _: NewProducerId, wall_ms: int) -> Step:
            most = self._node.settings.transaction_partitions_max
            return adding.add_partitions(
                found, *writer, partitions, client_version=client_version, wall_ms=wall_ms, max_partitions=most
            )

        self._step(transactional_id, decide, lambda step: done(step.error))

    def verify_partitions(
        self,
        transactional_id: str,
        writer: Writer,
        partitions: Collection[TopicPartition],
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Calls back at a moment when the answer holds: a batch appended before the callback returns is part of the
        transaction, since the transaction's end is decided in the same loop."""

        def failed(error: ErrorCode) -> None:
            done(dict.fromkeys(partitions, error))

        def loaded(shard: Shard[Transactions]) -> None:
            def committed(error: ErrorCode) -> None:
                if error is not ErrorCode.NONE:
                    failed(error)
                    return
                found = shard.machine.get(transactional_id)
                done(adding.verify_partitions(found, *writer, partitions))

            self._when_safe(shard, partitions, committed)

        self.with_shard(transactional_id, loaded, failed)

    def admit(
        self,
        transactional_id: str,
        writer: Writer,
        partitions: Collection[TopicPartition],
        client_version: int,
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
        *,
        add: bool,
    ) -> None:
        """Verifies the partitions; with `add`, adds missing partitions to the transaction first."""

        def verify(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                done(dict.fromkeys(partitions, error))
                return
            self.verify_partitions(transactional_id, writer, partitions, done)

        if add:
            self.add_partitions(transactional_id, writer, partitions, client_version, verify)
        else:
            verify(ErrorCode.NONE)

    def end(self, transactional_id: str, writer: Writer, commit: bool, client_version: int, done: Stepped) -> None:
        """Commits or aborts. Calls back when the decision is committed; the markers follow."""

        def decide(found: Transaction | None, new_producer_id: NewProducerId, wall_ms: int) -> Step:
            return ending.end_transaction(
                found,
                *writer,
                commit=commit,
                client_version=client_version,
                new_producer_id=new_producer_id,
                wall_ms=wall_ms,
            )

        self._step(transactional_id, decide, done)

    def describe(self, transactional_id: str, done: Callable[[Transaction | ErrorCode], None]) -> None:
        def loaded(shard: Shard[Transactions]) -> None:
            found = shard.machine.get(transactional_id)

            def committed(error: ErrorCode) -> None:
                if error is not ErrorCode.NONE:
                    done(error)
                else:
                    done(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if found is None else found)

            self.log.when_committed(shard, committed)

        if TRANSACTION_STATE_TOPIC not in self._node.image.topics:
            done(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        else:
            self.with_shard(transactional_id, loaded, done)

    def when_loaded(self, done: Callable[[list[Transactions]], None]) -> None:
        """Calls `done` with all shards that could be loaded. The caller only reads them."""
        self.log.when_loaded(lambda shards: done([shard.machine for shard in shards]))

    # Taking steps

    def with_shard(self, transactional_id: str, loaded: Callable[[Shard[Transactions]], None], failed: Done) -> None:
        if is_too_long(transactional_id):
            failed(ErrorCode.INVALID_REQUEST)
            return
        self.log.with_shard(partial(transaction_partition, transactional_id), loaded, failed)

    def _step(self, transactional_id: str, decide: Decide, done: Stepped) -> None:
        def loaded(shard: Shard[Transactions]) -> None:
            self._decide(shard, transactional_id, decide, no_producer_id, done)

        self.with_shard(transactional_id, loaded, lambda error: done(Step(error)))

    def _decide(
        self,
        shard: Shard[Transactions],
        transactional_id: str,
        decide: Decide,
        new_producer_id: NewProducerId,
        done: Stepped,
        *,
        patient: bool = True,
    ) -> None:
        def again(producer_ids: NewProducerId, *, patient: bool) -> None:
            # Other requests were served in the meantime, so the step is decided anew.
            self._decide(shard, transactional_id, decide, producer_ids, done, patient=patient)

        if shard.unloaded:
            done(Step(ErrorCode.NOT_COORDINATOR))
            return
        try:
            step = decide(shard.machine.get(transactional_id), new_producer_id, self._node.now.wall_ms)
        except NeedsProducerId:

            def allocated(producer_id: int | ErrorCode) -> None:
                if isinstance(producer_id, ErrorCode):
                    done(Step(producer_id))
                    return
                again(lambda: producer_id, patient=patient)

            self._node.producer_ids.next(allocated)
            return

        if patient and step == Step(ErrorCode.CONCURRENT_TRANSACTIONS):
            self._when_complete(transactional_id, lambda: again(new_producer_id, patient=False))
            return

        def committed(error: ErrorCode) -> None:
            done(step if error is ErrorCode.NONE else Step(error))

        if step.changed is not None:
            self._write(shard, step.changed, committed)
        elif step.error is ErrorCode.NONE:
            found = shard.machine.get(transactional_id)
            self._when_safe(shard, () if found is None else found.partitions, committed)
        else:
            done(step)

    def _write(self, shard: Shard[Transactions], changed: Transaction, done: Done) -> None:
        def written(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._when_safe(shard, changed.partitions, safe)
            else:
                safe(error)

        def safe(error: ErrorCode) -> None:
            if changed.state in PREPARED:
                self._complete(shard, changed.transactional_id)
            done(error)

        self.log.write(shard, [record_of(changed)], written)
        found = shard.machine.get(changed.transactional_id)
        if found is not None and found.state is State.ONGOING:
            shard.machine.begun_ms(found, self._node.now)

    def _when_safe(self, shard: Shard[Transactions], partitions: Collection[TopicPartition], done: Done) -> None:
        """Calls back when the shard's record of a transaction is as safe as the records in the transaction's
        partitions.

        If acks of a partition mean the disk and acks of __transaction_state do not, a power cut could leave records in
        the partition whose transaction is forgotten and never ends.
        """

        def committed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and self._outlast(shard, partitions):
                self.log.when_durable(shard, done)
            else:
                done(error)

        self.log.when_committed(shard, committed)

    def _outlast(self, shard: Shard[Transactions], partitions: Collection[TopicPartition]) -> bool:
        """Whether records in one of these partitions may survive a power cut that the shard's records do not."""
        if shard.partition.settings.acks_mean_disk:
            return False
        topics = self._node.image.topics
        return any(name.topic in topics and topics[name.topic].settings.acks_mean_disk for name in partitions)

    # From the decision to the completion

    def complete_all(self, shard: Shard[Transactions], transactional_ids: Sequence[str]) -> None:
        """Completes many transactions, a few in each turn."""
        node = self._node
        markers = taken = 0
        for transactional_id in transactional_ids:
            if markers >= MARKERS_AT_ONCE:
                break
            found = shard.machine.get(transactional_id)
            markers += 0 if found is None else len(found.partitions)
            taken += 1
            self._complete(shard, transactional_id)
        rest = transactional_ids[taken:]
        if rest:
            node.timers.at(node.now.boot_ms + 1, lambda _: self.complete_all(shard, rest))
            node.effects.wake()

    def _complete(self, shard: Shard[Transactions], transactional_id: str) -> None:
        """Writes the markers of a decided transaction, then its completion. Tries again until both are committed."""
        node = self._node
        found = shard.machine.get(transactional_id)
        if shard.unloaded or found is None or found.state not in PREPARED or transactional_id in self._completing:
            return
        self._completing.add(transactional_id)
        decided = found
        already = self._marked.get(transactional_id, frozenset())

        def again_later() -> None:
            if shard.unloaded:
                return
            # The id stays in `_completing`: else each look at it would begin tries of its own.
            self._completing.add(transactional_id)
            last_ms = self._pause_ms.get(transactional_id)
            pause_ms = RETRY_AFTER_MS if last_ms is None else min(2 * last_ms, LONGEST_RETRY_MS)
            self._pause_ms[transactional_id] = pause_ms
            node.timers.at(node.now.boot_ms + pause_ms, again)
            node.effects.wake()

        def again(_: Moment) -> None:
            if shard.unloaded:
                return
            self._completing.discard(transactional_id)
            self._complete(shard, transactional_id)

        def marked(outcomes: dict[TopicPartition, ErrorCode]) -> None:
            if shard.unloaded:
                return
            there = already.union(name for name, error in outcomes.items() if error in _GONE_FOR_GOOD)
            if len(there) < len(decided.partitions):
                self._marked[transactional_id] = there
                again_later()
                return
            assert shard.machine.get(transactional_id) is decided, f"{transactional_id}: changed while it was decided"
            self._completing.discard(transactional_id)
            completed = ending.complete(decided, node.now.wall_ms)
            self.log.write(shard, [record_of(completed)], written)
            if shard.machine.get(transactional_id) is decided:
                self._marked[transactional_id] = there
            else:
                self._marked.pop(transactional_id, None)
                self._pause_ms.pop(transactional_id, None)
            for timer in self._patient.pop(transactional_id, ()):
                timer.fire(node.now)
            self.families.marked(transactional_id)

        def written(error: ErrorCode) -> None:
            still = shard.machine.get(transactional_id)
            if error is not ErrorCode.NONE and still is decided:
                again_later()

        def committed(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                again_later()
                return
            writer = Writer(decided.producer_id, decided.producer_epoch)
            marker = TransactionMarker(decided.commits, shard.partition.leader_epoch)
            how = Ending(writer, marker, decided.client_version, durable=shard.partition.settings.acks_mean_disk)
            write_markers(node, how, sorted(decided.partitions - already), marked)

        # The shard may hold a newer record than the caller's: another request may have ended the transaction a moment
        # ago.
        self._when_safe(shard, decided.partitions, committed)

    def _when_complete(self, transactional_id: str, decide_again: Callable[[], None]) -> None:
        """Calls back when the markers are written, or after PATIENCE_MS."""
        node = self._node

        def fired(_: Moment) -> None:
            waiting = self._patient.get(transactional_id)
            if waiting is not None and timer in waiting:
                waiting.remove(timer)
                if not waiting:
                    del self._patient[transactional_id]
            decide_again()

        timer = node.timers.at(node.now.boot_ms + PATIENCE_MS, fired)
        self._patient.setdefault(transactional_id, []).append(timer)
        node.effects.wake()

    # Time

    def _look_at_all(self, now: Moment) -> None:
        """Aborts transactions that were open for too long, and completes decided ones."""
        node = self._node
        interval_ms = node.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        node.timers.at(now.boot_ms + interval_ms, self._look_at_all)

        self._each_in_steps(self._look)

    def _each_in_steps(self, look: Callable[[Shard[Transactions]], Iterator[None]]) -> None:
        """Checks each shard in steps, unless the last check of the shard is unfinished."""

        def steps(shard: Shard[Transactions]) -> Iterator[None]:
            yield from look(shard)
            self._looks.remove((look, shard))

        def begin(shard: Shard[Transactions]) -> None:
            if (look, shard) not in self._looks:
                self._looks.add((look, shard))
                self._node.in_turns.add_steps(steps(shard))

        self.log.each_shard_with_records(begin)

    def _look(self, shard: Shard[Transactions]) -> Iterator[None]:
        node, machine = self._node, shard.machine
        for ids in _portions(machine.ids()):
            written = 0
            for each in machine.timed_out(node.now, ids):
                # A client may have ended the transaction during a pause.
                if machine.get(each.transactional_id) is each:
                    self._write(shard, ending.time_out(each, node.now.wall_ms), lambda error: None)
                    written += 1 + len(each.partitions)
                if written >= ENDED_PER_STEP:
                    written = 0
                    yield
            if len(ids) == LOOKED_AT_PER_STEP:
                yield
        yield from self.families.look(shard)
        decided: list[str] = []
        for ids in _portions(machine.ids()):
            decided += [each.transactional_id for each in machine.prepared(ids)]
            if len(ids) == LOOKED_AT_PER_STEP:
                yield
        self.complete_all(shard, decided)

    def _forget_unused(self, now: Moment) -> None:
        node = self._node
        settings = node.settings
        node.timers.at(
            now.boot_ms + settings.transaction_remove_expired_transaction_cleanup_interval_ms, self._forget_unused
        )
        self._each_in_steps(self._forget)

    def _forget(self, shard: Shard[Transactions]) -> Iterator[None]:
        node, machine = self._node, shard.machine
        expiration_ms = node.settings.transactional_id_expiration_ms
        for ids in _portions(machine.ids()):
            self.log.write(shard, machine.expired(node.now.wall_ms, expiration_ms, ids), lambda error: None)
            if len(ids) == LOOKED_AT_PER_STEP:
                yield
        yield from self.families.forget(shard)


def _portions(transactional_ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(transactional_ids), LOOKED_AT_PER_STEP):
        yield transactional_ids[start : start + LOOKED_AT_PER_STEP]

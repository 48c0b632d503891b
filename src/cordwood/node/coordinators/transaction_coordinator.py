"""The transaction coordinator on this node: decides requests, and looks at all transactions by the clock.

A decision is written and committed before its first marker (`Completions`), and a start completes the transactions that
were decided before the stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import NamedTuple

from cordwood.model.coordination import transaction_partition
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC, TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.node.coordinators.coordinator_log import Done, Ground, ShardState, Writer
from cordwood.node.coordinators.family_coordinator import FamilyCoordinator
from cordwood.node.coordinators.marker_sender import MarkerSender
from cordwood.node.coordinators.producer_ids import ProducerIds
from cordwood.node.coordinators.transaction_completion import Completions
from cordwood.node.coordinators.transaction_shards import LedTransactions, TransactionShards
from cordwood.node.loop.peers import Home
from cordwood.transactions import adding, beginning, ending
from cordwood.transactions.log_records import record_of
from cordwood.transactions.transaction import (
    EPOCH_BUMPED,
    PREPARED,
    SAME_EPOCH,
    NeedsProducerId,
    NewProducerId,
    State,
    Step,
    Transaction,
    no_producer_id,
)
from cordwood.transactions.transactional_ids import Transactions

LOOKED_AT_PER_STEP = 250
ENDED_PER_STEP = 100
"""The most transactional ids that one turn checks by the clock, and the most partitions of transactions that it
ends."""

Stepped = Callable[[Step], None]
Decide = Callable[[Transaction | None, NewProducerId, int], Step]


class Vouched(NamedTuple):
    """A coordinator's answer to the leader of some partitions."""

    errors: dict[TopicPartition, ErrorCode]
    coordinator_epoch: int = -1
    """The leader epoch in which the coordinator answers; -1: it does not say."""
    otherwise: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE
    """The error of partitions that are not in `errors`."""


class TransactionCoordinator:
    def __init__(self, ground: Ground, producer_ids: ProducerIds, markers: MarkerSender, home: Home) -> None:
        self._loop = ground.loop
        self._home = home
        self._image = ground.image
        self._reports = ground.reports
        self._producer_ids = producer_ids
        self._shards = TransactionShards(ground, self._loaded, self._unloaded)
        self.log = self._shards.log
        self.completions = Completions(ground.loop, ground.image, self._shards, markers, FamilyCoordinator.marked)
        self.families = FamilyCoordinator(ground.loop, self._shards, self.completions, producer_ids)

    def _loaded(self, shard: LedTransactions) -> None:
        """Completes transactions that were decided in an earlier epoch."""
        self._in_steps(self._look, shard)

    def _unloaded(self, shard: LedTransactions) -> None:
        self.completions.unloaded(shard)
        self.families.unloaded(shard)

    def schedule(self, now: Moment) -> None:
        self._schedule_looking(now)
        self._schedule_forgetting(now)

    def _schedule_looking(self, now: Moment) -> None:
        interval_ms = self._image.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._loop.timers.at(now.boot_ms + interval_ms, self._look_at_all)

    def _schedule_forgetting(self, now: Moment) -> None:
        interval_ms = self._image.settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._loop.timers.at(now.boot_ms + interval_ms, self._forget_unused)

    # Requests

    def init_producer_id(self, asked: beginning.Beginning, done: Stepped) -> None:
        def decide(found: Transaction | None, new_producer_id: NewProducerId, wall_ms: int) -> Step:
            if found is None and self._is_full():
                return Step(ErrorCode.POLICY_VIOLATION)
            return beginning.init_producer(found, asked, new_producer_id, wall_ms)

        self._step(asked.transactional_id, decide, done)

    def _is_full(self) -> bool:
        most = self._image.settings.transactional_ids_max
        if sum(len(shard.machine) for shard in self.log.loaded_shards()) < most:
            return False
        # The answer has no room for a reason.
        self._reports.report(
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
        connection_id: int,
        done: Done,
    ) -> None:
        """Adds partitions for a client of version 1. Calls back when the record that adds them to the transaction is
        committed."""
        add = self._adding(writer, partitions, SAME_EPOCH)

        def loaded(shard: LedTransactions) -> None:
            def decide(found: Transaction | None, new_producer_id: NewProducerId, wall_ms: int) -> Step:
                step = add(found, new_producer_id, wall_ms)
                if step.error is ErrorCode.CONCURRENT_TRANSACTIONS:
                    shard.next_begun.refused_to_add(transactional_id, connection_id)
                elif step.changed is not None:
                    shard.next_begun.added(transactional_id)
                return step

            self._decide(shard, transactional_id, decide, no_producer_id, lambda step: done(step.error))

        self._shards.with_shard(transactional_id, loaded, done)

    def refused_to_add(self, transactional_id: str, connection_id: int) -> None:
        """Notes that a client of version 1 was refused partitions that do not exist: it has begun a transaction."""
        shard = self.log.loaded(partial(transaction_partition, transactional_id))
        if shard is not None:
            shard.next_begun.refused_to_add(transactional_id, connection_id)

    def _adding(self, writer: Writer, partitions: Collection[TopicPartition], client_version: int) -> Decide:
        def decide(found: Transaction | None, _: NewProducerId, wall_ms: int) -> Step:
            return adding.add_partitions(
                found,
                *writer,
                partitions,
                client_version=client_version,
                wall_ms=wall_ms,
                max_partitions=self._image.settings.transaction_partitions_max,
                topic_ids=self._topic_ids(partitions),
            )

        return decide

    def vouch(
        self,
        transactional_id: str,
        writer: Writer,
        partitions: Collection[TopicPartition],
        topic_ids: adding.TopicIds,
        add: bool,
        done: Callable[[Vouched], None],
    ) -> None:
        """Answers the leader of some partitions whether the transaction includes them; with `add`, adds them first.

        `topic_ids` are the ids of the topics that the leader means, if it names them. Calls back when the state behind
        the answer is committed. The transaction may end at any time after that.
        """
        if not transactional_id:
            done(Vouched({}, otherwise=ErrorCode.INVALID_REQUEST))
            return
        if add:
            problems = {name: self._problem(name, topic_ids) for name in partitions}
            if any(problem is not ErrorCode.NONE for problem in problems.values()):
                # Either all partitions are added or none.
                refused = {name: problem or ErrorCode.OPERATION_NOT_ATTEMPTED for name, problem in problems.items()}
                done(Vouched(refused))
                return

        def failed(error: ErrorCode) -> None:
            done(Vouched({}, otherwise=error))

        def loaded(shard: LedTransactions) -> None:
            epoch = shard.partition.role.leader_epoch

            def stepped(step: Step) -> None:
                done(Vouched(dict.fromkeys(partitions, step.error), epoch))

            def committed(error: ErrorCode) -> None:
                if error is not ErrorCode.NONE:
                    failed(error)
                    return
                found = shard.machine.get(transactional_id)
                known = topic_ids or self._topic_ids(partitions)
                done(Vouched(adding.verify_partitions(found, *writer, partitions, known), epoch))

            if add:
                # Leaders add the partitions that a client of version 2 writes to.
                decide = self._adding(writer, partitions, EPOCH_BUMPED)
                self._decide(shard, transactional_id, decide, no_producer_id, stepped)
            else:
                self._shards.when_safe(shard, partitions, committed)

        self._shards.with_shard(transactional_id, loaded, failed)

    def _problem(self, name: TopicPartition, topic_ids: adding.TopicIds) -> ErrorCode:
        if name.topic == TRANSACTION_STATE_TOPIC:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic_id = topic_ids.get(name.topic)
        if topic_id is not None and topic_id not in self._image.topics_by_id:
            # One of the two brokers lags behind the other.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self._image.partition_of(*name) is None else ErrorCode.NONE

    def _topic_ids(self, partitions: Collection[TopicPartition]) -> dict[str, TopicId]:
        topics = self._image.topics
        return {topic: topics[topic].topic_id for topic in {name.topic for name in partitions} if topic in topics}

    def end(
        self,
        transactional_id: str,
        writer: Writer,
        commit: bool,
        client_version: int,
        connection_id: int,
        done: Stepped,
    ) -> None:
        """Commits or aborts. Calls back when the decision is committed; the markers follow."""

        def loaded(shard: LedTransactions) -> None:
            def decide(found: Transaction | None, new_producer_id: NewProducerId, wall_ms: int) -> Step:
                step = ending.end_transaction(
                    found,
                    *writer,
                    commit=commit,
                    client_version=client_version,
                    new_producer_id=new_producer_id,
                    wall_ms=wall_ms,
                    next_begun=transactional_id in shard.next_begun,
                )
                if step.changed is not None and client_version < EPOCH_BUMPED:
                    shard.next_begun.decided(transactional_id, connection_id)
                return step

            self._decide(shard, transactional_id, decide, no_producer_id, done)

        self._shards.with_shard(transactional_id, loaded, lambda error: done(Step(error)))

    def describe(self, transactional_id: str, done: Callable[[Transaction | ErrorCode], None]) -> None:
        def loaded(shard: LedTransactions) -> None:
            found = shard.machine.get(transactional_id)

            def committed(error: ErrorCode) -> None:
                if error is not ErrorCode.NONE:
                    done(error)
                else:
                    done(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if found is None else found)

            self.log.when_committed(shard, committed)

        if TRANSACTION_STATE_TOPIC not in self._image.topics:
            done(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        else:
            self._shards.with_shard(transactional_id, loaded, done)

    def when_loaded(self, done: Callable[[list[Transactions]], None]) -> None:
        """Calls `done` with all shards that could be loaded. The caller only reads them."""
        self.log.when_loaded(lambda shards: done([shard.machine for shard in shards]))

    # Taking steps

    def _step(self, transactional_id: str, decide: Decide, done: Stepped) -> None:
        def loaded(shard: LedTransactions) -> None:
            self._decide(shard, transactional_id, decide, no_producer_id, done)

        self._shards.with_shard(transactional_id, loaded, lambda error: done(Step(error)))

    def _decide(
        self,
        shard: LedTransactions,
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

        if shard.state is ShardState.UNLOADED:
            done(Step(ErrorCode.NOT_COORDINATOR))
            return
        try:
            step = decide(shard.machine.get(transactional_id), new_producer_id, self._loop.now.wall_ms)
        except NeedsProducerId:

            def allocated(producer_id: int | ErrorCode) -> None:
                if isinstance(producer_id, ErrorCode):
                    done(Step(producer_id))
                    return
                again(lambda: producer_id, patient=patient)

            self._producer_ids.next(allocated)
            return

        if patient and step == Step(ErrorCode.CONCURRENT_TRANSACTIONS):
            self.completions.when_complete(shard, transactional_id, lambda: again(new_producer_id, patient=False))
            return

        def committed(error: ErrorCode) -> None:
            done(step if error is ErrorCode.NONE else Step(error))

        if step.changed is not None:
            self._write(shard, step.changed, committed)
        elif step.error is ErrorCode.NONE:
            found = shard.machine.get(transactional_id)
            self._shards.when_safe(shard, () if found is None else found.partitions, committed)
        else:
            # The refusal may rest on records that are never committed.
            self.log.when_committed(shard, committed)

    def _write(self, shard: LedTransactions, changed: Transaction, done: Done) -> None:
        def written(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._shards.when_safe(shard, changed.partitions, safe)
            else:
                safe(error)

        def safe(error: ErrorCode) -> None:
            if changed.state in PREPARED:
                self.completions.complete(shard, changed.transactional_id)
                # The answer follows the markers for partitions that this broker leads: a client that hears of the end
                # of a transaction and asks this broker next finds its positions and records.
                self._home.call(lambda: done(error))
            else:
                done(error)

        self.log.write(shard, [record_of(changed)], written)
        found = shard.machine.get(changed.transactional_id)
        if found is not None and found.state is State.ONGOING:
            shard.machine.begun_ms(found, self._loop.now)

    # Time

    def _look_at_all(self, now: Moment) -> None:
        """Aborts transactions that were open for too long, and completes decided ones."""
        self._schedule_looking(now)
        self.log.each_shard_with_records(partial(self._in_steps, self._look))

    def _in_steps(self, look: Callable[[LedTransactions], Iterator[None]], shard: LedTransactions) -> None:
        """Checks a shard in steps, unless the last such check is unfinished."""

        def steps() -> Iterator[None]:
            for _ in look(shard):
                if shard.state is ShardState.UNLOADED:
                    return
                yield
            shard.looks.remove(look)

        if look not in shard.looks:
            shard.looks.add(look)
            self._loop.in_turns.add_steps(steps())

    def _look(self, shard: LedTransactions) -> Iterator[None]:
        loop, machine = self._loop, shard.machine
        for ids in _portions(machine.ids()):
            written = 0
            for each in machine.timed_out(loop.now, ids):
                # A client may have ended the transaction during a pause.
                if machine.get(each.transactional_id) is each:
                    self._write(shard, ending.time_out(each, loop.now.wall_ms), lambda error: None)
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
        self.completions.complete_all(shard, decided)

    def _forget_unused(self, now: Moment) -> None:
        self._schedule_forgetting(now)
        self.log.each_shard_with_records(partial(self._in_steps, self._forget))

    def _forget(self, shard: LedTransactions) -> Iterator[None]:
        loop, machine = self._loop, shard.machine
        expiration_ms = self._image.settings.transactional_id_expiration_ms
        for ids in _portions(machine.ids()):
            self.log.write(shard, machine.expired(loop.now.wall_ms, expiration_ms, ids), lambda error: None)
            if len(ids) == LOOKED_AT_PER_STEP:
                yield
        yield from self.families.forget(shard)


def _portions(transactional_ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(transactional_ids), LOOKED_AT_PER_STEP):
        yield transactional_ids[start : start + LOOKED_AT_PER_STEP]

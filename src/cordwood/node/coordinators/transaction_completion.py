"""From the decision about a transaction to its completion: all markers, then the record that says so.

A decision is committed before its first marker, and all markers are committed before the completion is written. A
completion that fails is tried again until it succeeds, or until the shard is unloaded: after a pause, and without one
when a partition whose marker is missing has another leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.partitions import Leadership
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.model.moment import Moment
from cordwood.node.coordinators.coordinator_log import ShardState, Writer
from cordwood.node.coordinators.marker_sender import MarkerSender
from cordwood.node.coordinators.transaction_markers import Ending
from cordwood.node.coordinators.transaction_shards import LedTransactions, NextTry, TransactionShards
from cordwood.node.loop.loop import Loop
from cordwood.records.control import TransactionMarker
from cordwood.transactions import ending
from cordwood.transactions.log_records import record_of
from cordwood.transactions.transaction import PREPARED, Transaction

RETRY_AFTER_MS = 500
LONGEST_RETRY_MS = 10_000
"""A failed completion is tried again after RETRY_AFTER_MS, then after twice as long each time, up to LONGEST_RETRY_MS:
a full disk stays full for a while, and thousands of transactions may wait for it."""

PATIENCE_MS = 100
"""The wait of a request for the last transaction's markers before it is told CONCURRENT_TRANSACTIONS: clients pause
before they ask again, mostly for longer than the markers take."""

MARKERS_AT_ONCE = 200
"""The most markers written in one turn for a decision over many ids: the loop serves requests in between."""

_ENDED_THERE = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
"""Outcomes of a marker after which the partition has no open part of the transaction. A leader that does not know the
partition may lag behind: only the coordinator's own image says that a topic is gone."""


class Completions:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        shards: TransactionShards,
        markers: MarkerSender,
        marked: Callable[[LedTransactions, str], None],
    ) -> None:
        """`marked` is told each transactional id whose markers are committed."""
        self._loop = loop
        self._image = image
        self._shards = shards
        self._markers = markers
        self._tell_marked = marked

    def unloaded(self, shard: LedTransactions) -> None:
        """Leaves completions to the next leader, and decides waiting requests again, which fails."""
        for waiting in shard.next_tries.values():
            waiting.timer.cancel()
        shard.next_tries.clear()
        patient, shard.patient = shard.patient, {}
        for timers in patient.values():
            for timer in timers:
                timer.fire(self._loop.now)

    def complete_all(self, shard: LedTransactions, transactional_ids: Sequence[str]) -> None:
        """Completes many transactions, a few in each turn."""
        markers = taken = 0
        for transactional_id in transactional_ids:
            if markers >= MARKERS_AT_ONCE:
                break
            found = shard.machine.get(transactional_id)
            markers += 0 if found is None else len(found.partitions)
            taken += 1
            self.complete(shard, transactional_id)
        rest = transactional_ids[taken:]
        if rest and shard.state is not ShardState.UNLOADED:
            self._loop.after(1, lambda _: self.complete_all(shard, rest))

    def leaders_changed(self) -> None:
        """Tries completions again without a pause if their missing markers belong to partitions with a new leader."""
        for shard in self._shards.log.loaded_shards():
            due = [each for each, waiting in shard.next_tries.items() if self._led_anew(waiting.leaders)]
            for transactional_id in due:
                shard.next_tries.pop(transactional_id).timer.cancel()
                shard.pauses_ms.pop(transactional_id, None)
                shard.completing.discard(transactional_id)
            if due:
                self.complete_all(shard, due)

    def _leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Leadership]:
        image = self._image
        found = {name: image.partition_of(*name) for name in partitions}
        return {name: image.leadership(each) for name, each in found.items() if each is not None}

    def _led_anew(self, leaders: dict[TopicPartition, Leadership]) -> bool:
        """True if one of the partitions has another leader by now, or is gone."""
        return self._leaders(leaders) != leaders

    def complete(self, shard: LedTransactions, transactional_id: str) -> None:
        """Writes the markers of a decided transaction, then its completion. Tries again until both are committed."""
        found = shard.machine.get(transactional_id)
        if (
            shard.state is ShardState.UNLOADED
            or found is None
            or found.state not in PREPARED
            or transactional_id in shard.completing
        ):
            return
        shard.completing.add(transactional_id)
        decided = found
        already = shard.marked.get(transactional_id, frozenset())
        asked: dict[TopicPartition, Leadership] = {}

        def again_later(missing: Iterable[TopicPartition] = ()) -> None:
            if shard.state is ShardState.UNLOADED:
                return
            # The id stays in completion: else each look at it would begin tries of its own.
            shard.completing.add(transactional_id)
            leaders = {name: asked[name] for name in missing if name in asked}
            if self._led_anew(leaders):
                pause_ms = 0
            else:
                last_ms = shard.pauses_ms.get(transactional_id)
                pause_ms = RETRY_AFTER_MS if last_ms is None else min(2 * last_ms, LONGEST_RETRY_MS)
                shard.pauses_ms[transactional_id] = pause_ms
            shard.next_tries[transactional_id] = NextTry(self._loop.after(pause_ms, again), leaders)

        def again(_: Moment) -> None:
            if shard.state is ShardState.UNLOADED:
                return
            del shard.next_tries[transactional_id]
            shard.completing.discard(transactional_id)
            self.complete(shard, transactional_id)

        def marked(outcomes: dict[TopicPartition, ErrorCode]) -> None:
            if shard.state is ShardState.UNLOADED:
                return
            ended = already.union(name for name, error in outcomes.items() if error in _ENDED_THERE)
            there = ended | self._gone(decided)
            if len(there) < len(decided.partitions):
                shard.marked[transactional_id] = there
                again_later(decided.partitions - there)
                return
            assert shard.machine.get(transactional_id) is decided, f"{transactional_id}: changed while it was decided"
            shard.completing.discard(transactional_id)
            completed = ending.complete(decided, self._loop.now.wall_ms)
            self._shards.log.write(shard, [record_of(completed)], written)
            if shard.machine.get(transactional_id) is decided:
                shard.marked[transactional_id] = there
            else:
                shard.marked.pop(transactional_id, None)
                shard.pauses_ms.pop(transactional_id, None)
            for timer in shard.patient.pop(transactional_id, ()):
                timer.fire(self._loop.now)
            self._tell_marked(shard, transactional_id)

        def written(error: ErrorCode) -> None:
            still = shard.machine.get(transactional_id)
            if error is not ErrorCode.NONE and still is decided:
                again_later()

        def committed(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                again_later()
                return
            writer = Writer(decided.producer_id, decided.producer_epoch)
            marker = TransactionMarker(decided.commits, shard.partition.role.leader_epoch)
            durable = shard.partition.settings.acks_mean_disk
            how = Ending(writer, marker, decided.client_version, durable, dict(decided.topic_ids))
            missing = sorted(decided.partitions - already - self._gone(decided))
            asked.update(self._leaders(missing))
            self._markers.send(how, missing, marked)

        # The shard may hold a newer record than the caller's: another request may have ended the transaction a moment
        # ago.
        self._shards.when_safe(shard, decided.partitions, committed)

    def _gone(self, decided: Transaction) -> frozenset[TopicPartition]:
        """The partitions of a transaction whose topics were deleted, by this broker's image."""
        image = self._image
        deleted = {topic for topic, topic_id in decided.topic_ids if topic_id not in image.topics_by_id}
        return frozenset(
            name for name in decided.partitions if name.topic in deleted or image.partition_of(*name) is None
        )

    def when_complete(self, shard: LedTransactions, transactional_id: str, decide_again: Callable[[], None]) -> None:
        """Calls back when the markers are written, or after PATIENCE_MS."""

        def fired(_: Moment) -> None:
            waiting = shard.patient.get(transactional_id)
            if waiting is not None and timer in waiting:
                waiting.remove(timer)
                if not waiting:
                    del shard.patient[transactional_id]
            decide_again()

        timer = self._loop.after(PATIENCE_MS, fired)
        shard.patient.setdefault(transactional_id, []).append(timer)

"""Changes of in-sync sets on their way to the metadata store: leaders propose, the store decides.

A proposal is due when a follower has caught up, and by the clock, for followers that lag. Proposals of one moment go in
one call, one call at a time. A change whose outcome is unknown stays pending in the leader (`replication/in_sync.py`);
the next visit by the clock asks again.
"""

from __future__ import annotations

from collections.abc import Iterator

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.planner.isr import IsrChange, IsrOutcome
from cordwood.model.identifiers import TopicId
from cordwood.model.moment import Moment
from cordwood.model.state_tables import Moves, State
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.node.partitions.partition import Partition
from cordwood.replication.leader import LeaderReplica, Proposal

VISITED_PER_STEP = 500
MOST_AT_ONCE = 1000
"""The most proposals in one call."""
AGAIN_MS = 1000
"""The pause before a visit for changes whose outcome is unknown or that were refused."""

Outcomes = dict[tuple[TopicId, int], IsrOutcome]


class Call(State):
    NONE = "no proposal is due"
    DUE = "proposals are made in the next turn"
    MADE = "proposals are on their way to the store"


class Visit(State):
    NONE = "no visit of all leaders is under way"
    BEGUN = "leaders are visited, in turns"
    ONCE_MORE = "leaders are visited, and another visit follows"


CALL_MOVES = Moves(
    "call with proposals of in-sync sets",
    {Call.NONE: {Call.DUE, Call.MADE}, Call.DUE: {Call.NONE}, Call.MADE: {Call.DUE}},
)
VISIT_MOVES = Moves(
    "visit of leaders",
    {
        Visit.NONE: {Visit.BEGUN, Visit.ONCE_MORE},
        Visit.BEGUN: {Visit.NONE},
        Visit.ONCE_MORE: {Visit.BEGUN, Visit.ONCE_MORE},
    },
)


class InSyncChanges:
    def __init__(self, loop: Loop, image: ClusterImage, hosted: HostedReplicas, reports: Reports) -> None:
        self._loop = loop
        self._image = image
        self._hosted = hosted
        self._reports = reports
        self._due: dict[Partition, None] = {}
        self._call = Call.NONE
        self._visit = Visit.NONE

    def schedule(self, now: Moment) -> None:
        self._loop.timers.at(now.boot_ms + max(1, self._image.settings.replica_lag_time_max_ms // 2), self._look)

    def due(self, partition: Partition) -> None:
        """Looks at the partition's in-sync set in the next turn."""
        self._due[partition] = None
        if self._call is Call.NONE:
            self._propose_soon()

    def _propose_soon(self) -> None:
        self._call = CALL_MOVES.moved("of this broker", self._call, Call.DUE)
        self._loop.after(0, self._propose)

    def _look(self, now: Moment) -> None:
        self.schedule(now)
        self._visit_soon()

    def image_changed(self) -> None:
        """Looks at all leaders while a disk is full: its broker leaves their in-sync sets.

        The leader writes the change, not the controller: a leader that writes is alive. The controller could leave a
        single replica in sync: a leader that has just lost its power, and that still counts as alive.
        """
        if self._full_disks():
            self._visit_soon()

    def _full_disks(self) -> frozenset[int]:
        return frozenset(broker_id for broker_id, broker in self._image.brokers.items() if broker.disk_full)

    def _visit_soon(self) -> None:
        begun = self._visit is not Visit.NONE
        self._visit = VISIT_MOVES.moved("of this broker", self._visit, Visit.ONCE_MORE if begun else Visit.BEGUN)
        if not begun:
            self._loop.in_turns.begin_steps(self._visit_all())

    def _visit_all(self) -> Iterator[None]:
        """Looks at all leaders with followers: some may lag."""
        for number, partition in enumerate(list(self._hosted), 1):
            if partition.role.leads and partition.replicated and partition.role.leading is not None:
                self.due(partition)
            if number % VISITED_PER_STEP == 0:
                yield
        once_more = self._visit is Visit.ONCE_MORE
        self._visit = VISIT_MOVES.moved("of this broker", self._visit, Visit.NONE)
        if once_more:
            self._visit_soon()

    def _may_join_in(self, broker_id: int) -> int | None:
        broker = self._image.brokers.get(broker_id)
        return broker.epoch if broker is not None and broker.takes_records else None

    def _propose(self, now: Moment) -> None:
        changes: list[IsrChange] = []
        proposed: list[tuple[Partition, LeaderReplica, Proposal]] = []
        lag_ms = self._image.settings.replica_lag_time_max_ms
        full = self._full_disks()
        while self._due and len(changes) < MOST_AT_ONCE:
            partition = next(iter(self._due))
            del self._due[partition]
            replica = partition.role.leading
            if replica is None or not self._hosted.still_leads(partition):
                continue
            proposal = replica.propose(now.boot_ms, lag_ms, partition.image.replicas, self._may_join_in, full)
            if proposal is None:
                continue
            proposed.append((partition, replica, proposal))
            version = proposal.version
            changes.append(
                IsrChange(
                    partition.topic_id,
                    partition.name.partition,
                    replica.leader_epoch,
                    version.partition_epoch,
                    version.mod_revision,
                    tuple(broker for broker in partition.image.replicas if broker in proposal.isr),
                    proposal.broker_epochs,
                    proposal.lost,
                )
            )
        self._call = CALL_MOVES.moved("of this broker", self._call, Call.MADE if changes else Call.NONE)
        if not changes:
            return

        def done(result: Outcomes | Exception) -> None:
            self._ended(proposed, result)
            self._call = CALL_MOVES.moved("of this broker", self._call, Call.NONE)
            if self._due:
                self._propose_soon()

        self._loop.effects.metadata(lambda writer: writer.change_isr(changes), done)

    def _ended(self, proposed: list[tuple[Partition, LeaderReplica, Proposal]], result: Outcomes | Exception) -> None:
        if isinstance(result, Exception):
            self._reports.failure(result)
        again: list[Partition] = []
        for partition, replica, (version, *_) in proposed:
            outcome = IsrOutcome.UNKNOWN
            if not isinstance(result, Exception):
                outcome = result[partition.topic_id, partition.name.partition]
            if outcome is IsrOutcome.APPLIED:
                replica.in_sync.applied(version)
            elif outcome is IsrOutcome.REFUSED:
                replica.in_sync.refused(version)
                again.append(partition)
            else:
                replica.in_sync.unknown(version)
                again.append(partition)
            if partition.role.leading is replica:
                partition.proposal_ended(self._loop.now)
        if again:
            self._loop.after(AGAIN_MS, lambda _: self._again(again))

    def _again(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            if self._hosted.hosts(partition):
                self.due(partition)

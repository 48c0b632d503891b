"""Switches: each breaks one rule of the specification of replication in a running cluster."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from simulation.world import life
from simulation.world.disk import SimulatedDisk

from cordwood.cluster import registration
from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.partitions import NOBODY, Leadership, PartitionImage, partition_row
from cordwood.cluster.metadata.rows import BrokerRow, PartitionRow, decode_partition, encode_partition
from cordwood.cluster.planner import failover, isr, reassignment
from cordwood.cluster.planner.isr import GuardedPut, IsrChange
from cordwood.cluster.planner.registration import RegisteredBroker, plan_registration
from cordwood.log.log import Log
from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.upkeep.truncation import Truncation
from cordwood.model.errors import ErrorCode
from cordwood.node.handlers.records import fetch
from cordwood.node.handlers.records.fetching import Fetching
from cordwood.node.loop.serving import FOREVER_MS, Serving
from cordwood.node.partitions.appends import Appends
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.node.partitions.partition import Partition
from cordwood.node.replication import fetcher
from cordwood.node.replication.asking_leaders import Asked
from cordwood.node.replication.repair import Repair
from cordwood.node.requests.fetch_sessions import Target
from cordwood.replication import follower
from cordwood.replication.dropped_deletions import Verdict
from cordwood.replication.follower import FollowerReplica, Refused, Restart
from cordwood.replication.in_sync import Follower, InSyncSet, Version
from cordwood.replication.leader import LeaderReplica
from cordwood.wire.fetched import FetchedPartition

Patch = pytest.MonkeyPatch


def counts_what_is_not_synced(patch: Patch) -> None:
    patch.setattr(LeaderReplica, "own_end", property(lambda leader: leader.log.offsets.end))
    patch.setattr(FollowerReplica, "durable", property(lambda follower: True))


def keeps_replicas_that_lost_their_power(patch: Patch) -> None:
    patch.setattr(
        SimulatedDisk, "loss_not_noted", property(lambda disk: False, lambda disk, value: None), raising=False
    )


def follows_a_log_whose_end_is_in_doubt(patch: Patch) -> None:
    patch.setattr(LogOffsets, "end_in_doubt", property(lambda offsets: False, lambda offsets, value: None))


def takes_an_empty_disk_for_the_old_one(patch: Patch) -> None:
    real = failover.unworthy_of

    def unworthy(image: ClusterImage, topic: TopicImage, partition: PartitionImage) -> frozenset[int]:
        found = real(image, topic, partition)
        return frozenset(broker for broker in found if image.brokers[broker].unclean)

    patch.setattr(failover, "unworthy_of", unworthy)


def elects_the_last_leader_whatever_others_have(patch: Patch) -> None:
    patch.setattr(failover, "longest_log", lambda image, topic, index, stayed, asked_for_ms: stayed)


def cuts_followers_at_their_high_watermark(patch: Patch) -> None:
    real = Partition.begin_following

    def begin_following(partition: Partition) -> FollowerReplica:
        begins = partition.role.following is None
        following = real(partition)
        if begins and following.high_watermark < following.log.offsets.end:
            following.log.truncate_to(following.high_watermark)
        return following

    patch.setattr(Partition, "begin_following", begin_following)


def cuts_committed_records_without_a_recorded_loss(patch: Patch) -> None:
    patch.setattr(FollowerReplica, "loss_is_recorded", property(lambda follower: True))


def counts_only_the_committed_isr(patch: Patch) -> None:
    patch.setattr(InSyncSet, "maximal", property(lambda in_sync: in_sync.committed))


def drops_a_change_of_unknown_outcome(patch: Patch) -> None:
    def unknown(in_sync: InSyncSet, version: Version) -> None:
        in_sync._was_uncertain = False
        in_sync.refused(version)

    patch.setattr(InSyncSet, "unknown", unknown)


def leads_on_in_its_old_epoch(patch: Patch) -> None:
    def leadership(image: ClusterImage, partition: PartitionImage) -> Leadership:
        return Leadership(partition.leader, partition.leader_epoch)

    def of_this_process(hosted: HostedReplicas, image: PartitionImage) -> tuple[bool, int, int]:
        leads = image.leader == hosted._broker_id
        return leads, -1 if leads else image.leader, image.leader_epoch

    patch.setattr(ClusterImage, "leadership", leadership)
    patch.setattr(HostedReplicas, "_leadership", of_this_process)


def takes_late_answers(patch: Patch) -> None:
    def still_counts(one: fetcher.Fetcher, asked: Asked) -> bool:
        return asked.partition.role.following is not None and not asked.partition.role.being_cut

    real = fetcher.Fetcher._append

    def append(one: fetcher.Fetcher, partition: Partition, *arguments: Any) -> None:
        fetches = partition in one._partitions
        one._partitions.setdefault(partition, 0)
        real(one, partition, *arguments)
        if not fetches:
            del one._partitions[partition]

    patch.setattr(fetcher.Fetcher, "_still_counts", still_counts)
    patch.setattr(fetcher.Fetcher, "_append", append)


def commits_on_fewer_than_min_insync_replicas(patch: Patch) -> None:
    real = LeaderReplica._members_changed

    def members_changed(leader: LeaderReplica) -> bool:
        real(leader)
        leader.enough_in_sync = True
        return leader.advance()

    patch.setattr(LeaderReplica, "_members_changed", members_changed)


def commits_while_others_are_eligible(patch: Patch) -> None:
    real = LeaderReplica._members_changed

    def members_changed(leader: LeaderReplica) -> bool:
        real(leader)
        leader.enough_in_sync = len(leader.in_sync.committed) >= leader._min_insync_replicas
        return leader.advance()

    patch.setattr(LeaderReplica, "_members_changed", members_changed)


def serves_without_a_lease(patch: Patch) -> None:
    def lease_renewed(serving: Serving, sent_boot_ms: int) -> None:
        serving.until_ms = FOREVER_MS

    patch.setattr(Serving, "lease_renewed", lease_renewed)
    patch.setattr(Serving, "lost", lambda serving: None)


def ignores_that_histories_diverged(patch: Patch) -> None:
    patch.setattr(LeaderReplica, "divergence", lambda leader, last_fetched_epoch, fetch_offset: None)


def acknowledges_what_only_the_leader_has(patch: Patch) -> None:
    real = Appends.append

    def append(appends: Appends, *arguments: Any, **options: Any) -> Any:
        appended, _ = real(appends, *arguments, **options)
        return appended, True

    patch.setattr(Appends, "append", append)


def lets_replicas_join_too_early(patch: Patch) -> None:
    def may_join(leader: LeaderReplica, broker_id: int) -> bool:
        return leader.follower(broker_id) is not None and broker_id not in leader.in_sync.maximal

    patch.setattr(LeaderReplica, "may_join", may_join)


def elects_anybody_who_lives(patch: Patch) -> None:
    def elect(
        image: ClusterImage, topic: TopicImage, partition: PartitionImage, *arguments: Collection[int]
    ) -> int | None:
        return next((broker for broker in partition.replicas if failover.is_electable(image, broker)), None)

    patch.setattr(failover, "_elect", elect)


def writes_rows_without_a_new_partition_epoch(patch: Patch) -> None:
    real = isr.plan_isr_change

    def plan(image: ClusterImage, broker_epoch: int, change: IsrChange) -> GuardedPut | None:
        write = real(image, broker_epoch, change)
        if write is None:
            return None
        row = decode_partition(write.put.value)
        put = write.put._replace(value=encode_partition(row._replace(partition_epoch=row.partition_epoch - 1)))
        return write._replace(put=put)

    patch.setattr("cordwood.cluster.isr_writer.plan_isr_change", plan)


def elects_without_a_new_epoch(patch: Patch) -> None:
    real = failover.elected

    def elected(image: ClusterImage, *arguments: Any, **options: Any) -> Any:
        row = real(image, *arguments, **options)
        return row._replace(leader_epoch=row.leader_epoch - 1)

    patch.setattr(failover, "elected", elected)


def keeps_the_dead_leader_in_charge_of_the_isr(patch: Patch) -> None:
    """Changes the ISR without a comparison: a deposed leader overwrites its successor."""
    real = isr.plan_isr_change

    def plan(image: ClusterImage, broker_epoch: int, change: IsrChange) -> GuardedPut | None:
        write = real(image, broker_epoch, change)
        return None if write is None else write._replace(compares=write.compares[1:])

    patch.setattr("cordwood.cluster.isr_writer.plan_isr_change", plan)


def adds_replicas_of_an_earlier_registration(patch: Patch) -> None:
    """Changes the ISR without a comparison of the broker epochs of those who join."""
    real = isr.plan_isr_change

    def plan(image: ClusterImage, broker_epoch: int, change: IsrChange) -> GuardedPut | None:
        write = real(image, broker_epoch, change)
        return None if write is None else write._replace(compares=write.compares[:1])

    patch.setattr("cordwood.cluster.isr_writer.plan_isr_change", plan)


def registers_without_a_fence(patch: Patch) -> None:
    def register(broker_id: int, row: BrokerRow, *arguments: Any) -> RegisteredBroker:
        return plan_registration(broker_id, row._replace(fenced=False), *arguments)

    patch.setattr(registration, "plan_registration", register)


def elects_without_candidates(patch: Patch) -> None:
    """Elects any replica where all who could lead lost their storage, without an operator's word."""
    real = failover._elect

    def elect(
        image: ClusterImage, topic: TopicImage, partition: PartitionImage, *arguments: Collection[int]
    ) -> int | None:
        if partition.isr or partition.elr:
            return real(image, topic, partition, *arguments)
        return next((broker for broker in partition.replicas if failover.is_electable(image, broker)), None)

    patch.setattr(failover, "_elect", elect)


def lets_old_fetches_vouch(patch: Patch) -> None:
    """Counts a fetch from its arrival, however long ago it was sent."""
    real = Follower.fetched

    def fetched(follower: Follower, *arguments: Any) -> None:
        real(follower, *arguments)
        follower.vouches_ms = follower.fetched_ms

    patch.setattr(Follower, "fetched", fetched)


def serves_on_without_its_row(patch: Patch) -> None:
    patch.setattr(Serving, "lost", lambda serving: None)


def confirms_what_waited_without_authority(patch: Patch) -> None:
    """Looks at the authority when a request is taken, and not before its answer."""
    real = HostedReplicas.leader

    def leader(hosted: HostedReplicas, topic: str, index: int) -> Partition:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(HostedReplicas, "serves", serves)
            return real(hosted, topic, index)

    serves = HostedReplicas.serves
    patch.setattr(HostedReplicas, "leader", leader)
    patch.setattr(HostedReplicas, "serves", lambda hosted, partition: True)


def prefers_replicas_that_are_not_in_sync(patch: Patch) -> None:
    def elections(image: ClusterImage, topics: Collection[TopicImage], recent: Collection[int]) -> Iterator[GuardedPut]:
        for topic in topics:
            for index, partition in enumerate(topic.partitions):
                preferred = partition.replicas[0]
                if partition.leader not in (preferred, NOBODY) and failover.is_electable(image, preferred):
                    elected = failover.elected(image, topic, partition, preferred, ())
                    yield failover.guarded(image, topic, index, elected)

    patch.setattr("cordwood.cluster.controller.preferred_elections", elections)


def answers_followers_of_another_epoch(patch: Patch) -> None:
    patch.setattr(LeaderReplica, "check_epoch", lambda leader, current_leader_epoch: None)


def counts_followers_of_an_earlier_registration(patch: Patch) -> None:
    patch.setattr(fetch, "check_broker", lambda *question: None)


def cuts_only_by_the_leaders_end(patch: Patch) -> None:
    """Forgets that the follower's own epoch may have ended before the leader's."""

    def cut_at(follower: FollowerReplica, leader_epoch: int, leader_end: int) -> int:
        return min(leader_end, follower.log.offsets.end)

    patch.setattr(FollowerReplica, "cut_at", cut_at)


def never_begins_anew(patch: Patch) -> None:
    real = FollowerReplica.answered

    def answered(follower: FollowerReplica, asked: Any, answer: Any) -> Any:
        step = real(follower, asked, answer)
        return Refused(ErrorCode.OFFSET_OUT_OF_RANGE) if isinstance(step, Restart) else step

    patch.setattr(FollowerReplica, "answered", answered)


def leads_without_recording_its_epoch(patch: Patch) -> None:
    real = Log.begin_epoch

    def begin_epoch(log: Log, leader_epoch: int) -> None:
        if not log.replayed.ready:
            real(log, log.replayed.latest_epoch)

    patch.setattr(Log, "begin_epoch", begin_epoch)


def takes_the_leaders_high_watermark_as_it_is(patch: Patch) -> None:
    real: Callable[[Partition], int] = vars(Partition)["high_watermark"].fget

    def took(follower: FollowerReplica, leader_high_watermark: int, boot_ms: int) -> bool:
        follower.high_watermark = follower.leader_high_watermark = leader_high_watermark
        follower.heard_ms = boot_ms
        return True

    def high_watermark(partition: Partition) -> int:
        following = partition.role.following
        return real(partition) if following is None else following.high_watermark

    patch.setattr(FollowerReplica, "took", took)
    patch.setattr(Partition, "high_watermark", property(high_watermark))


def tells_its_end_before_it_knows_what_is_committed(patch: Patch) -> None:
    patch.setattr(LeaderReplica, "knows_high_watermark", property(lambda leader: True))


def starts_on_a_store_that_went_back(patch: Patch) -> None:
    async def check_cluster(*arguments: Any) -> None:
        """Takes every store."""

    patch.setattr(life, "check_cluster", check_cluster)


def ends_moves_before_their_targets_are_in_sync(patch: Patch) -> None:
    def next_step(image: ClusterImage, topic: TopicImage, partition: PartitionImage) -> PartitionRow | None:
        target = reassignment.target_of(partition)
        if not reassignment.is_moving(partition) or partition.leader not in target:
            return None
        return partition_row(partition)._replace(replicas=target, isr=target, elr=(), adding=(), removing=())

    patch.setattr(reassignment, "next_step", next_step)


def counts_fetches_of_a_replica_that_left(patch: Patch) -> None:
    patch.setattr(reassignment, "_replica_leaves", lambda before, row: False)


def remembers_producers_of_records_that_were_cut(patch: Patch) -> None:
    real = Truncation._restore_history

    def restore_history(truncation: Truncation) -> None:
        producers = truncation._replayed.producers
        real(truncation)
        truncation._replayed._producers = producers

    patch.setattr(Truncation, "_restore_history", restore_history)


def shows_what_is_not_committed_at_followers(patch: Patch) -> None:
    """Lets clients of a follower read to the end of its log."""

    def read_as_follower(fetching: Fetching, partition: Partition, target: Target) -> FetchedPartition:
        following = partition.role.following
        assert following is not None
        following.check_reader(target.current_leader_epoch, target.fetch_offset, target.last_fetched_epoch)
        log = following.log
        end = following.last_stable_offset if fetching._committed_only else log.offsets.end
        return fetching._find(partition, log, target, end, following.high_watermark, following.last_stable_offset)

    patch.setattr(Fetching, "_read_as_follower", read_as_follower)


def acknowledges_deletions_that_only_the_leader_has(patch: Patch) -> None:
    patch.setattr(LeaderReplica, "saved_by_successors", property(lambda leader: 1 << 63))


def lets_replicas_join_with_records_that_were_deleted(patch: Patch) -> None:
    def may_join(leader: LeaderReplica, broker_id: int) -> bool:
        follower = leader.follower(broker_id)
        outside = broker_id not in leader.in_sync.maximal
        return outside and follower is not None and follower.end >= max(leader.high_watermark, leader.epoch_start)

    patch.setattr(LeaderReplica, "may_join", may_join)


def goes_on_without_deletions_that_its_leader_dropped(patch: Patch) -> None:
    patch.setattr(follower, "judge", lambda *arguments, **options: Verdict.GO_ON)


def repairs_nothing(patch: Patch) -> None:
    patch.setattr(Repair, "due", lambda repair: None)

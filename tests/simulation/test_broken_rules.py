"""The game of replication notices a cluster that breaks one rule of replication, within a few games."""

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from cordwood.cluster.image import ClusterImage, TopicImage
from cordwood.cluster.partition_image import Leadership, PartitionImage
from cordwood.cluster.planner import failover, isr
from cordwood.cluster.planner.isr import GuardedPut, IsrChange
from cordwood.cluster.rows import decode_partition, encode_partition
from cordwood.node.appends import Appends
from cordwood.node.hosted import HostedReplicas
from cordwood.node.partition import Partition
from cordwood.node.replication import fetchers
from cordwood.node.serving import FOREVER_MS, Serving
from cordwood.replication.follower import FollowerReplica
from cordwood.replication.in_sync import InSyncSet, Version
from cordwood.replication.leader import LeaderReplica
from cordwood.simulation.disk import SimulatedDisk
from cordwood.simulation.game import SimulationFailed
from cordwood.simulation.replication_game import FAULTS, Weather, play

Patch = pytest.MonkeyPatch
MOST_GAMES = 40
SEEDS = int(os.environ.get("CORDWOOD_REPLICATION_SEEDS", "0"))

CALM = Weather(("kill",), 0.01, 0.9, deletes=False, store_fails=0.0)
STORM = replace(CALM, faults=tuple(fault for fault in FAULTS if fault not in ("slow disk", "clock")), rate=0.02)
POWER = replace(CALM, faults=("power", "kill", "power of several"), rate=0.02)
CUTS = replace(
    CALM,
    faults=("cut between brokers", "cut off from all brokers", "cut from the store", "pause", "kill"),
    rate=0.02,
    store_fails=0.2,
)
DISKS = replace(CALM, faults=("replaced disk", "kill", "power"), rate=0.02)


def counts_what_is_not_synced(patch: Patch) -> None:
    patch.setattr(LeaderReplica, "own_end", property(lambda leader: leader.log.offsets.end))
    patch.setattr(FollowerReplica, "durable", property(lambda follower: True))


def keeps_replicas_that_lost_their_power(patch: Patch) -> None:
    patch.setattr(
        SimulatedDisk, "loss_not_noted", property(lambda disk: False, lambda disk, value: None), raising=False
    )


def takes_an_empty_disk_for_the_old_one(patch: Patch) -> None:
    real = failover._unworthy

    def unworthy(image: ClusterImage, topic: TopicImage, partition: PartitionImage) -> frozenset[int]:
        found = real(image, topic, partition)
        return frozenset(broker for broker in found if image.brokers[broker].unclean)

    patch.setattr(failover, "_unworthy", unworthy)


def cuts_followers_at_their_high_watermark(patch: Patch) -> None:
    real = Partition.begin_following

    def begin_following(partition: Partition) -> FollowerReplica:
        begins = partition.following is None
        following = real(partition)
        if begins and following.high_watermark < following.log.offsets.end:
            following.log.truncate_to(following.high_watermark)
        return following

    patch.setattr(Partition, "begin_following", begin_following)


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
    def still_counts(fetcher: Any, asked: Any) -> bool:
        return not asked.partition.cutting

    real = FollowerReplica.answered

    def answered(follower: FollowerReplica, asked: Any, answer: Any) -> Any:
        follower._asked = asked._replace(offset=follower.log.offsets.end)
        return real(follower, follower._asked, answer)

    patch.setattr(fetchers._Fetcher, "_still_counts", still_counts)
    patch.setattr(FollowerReplica, "answered", answered)


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
        image: ClusterImage, topic: TopicImage, partition: PartitionImage, unworthy: Collection[int]
    ) -> int | None:
        return next((broker for broker in partition.replicas if failover._electable(image, broker)), None)

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
    real = failover._elected

    def elected(image: ClusterImage, *arguments: Any, **options: Any) -> Any:
        row = real(image, *arguments, **options)
        return row._replace(leader_epoch=row.leader_epoch - 1)

    patch.setattr(failover, "_elected", elected)


def keeps_the_dead_leader_in_charge_of_the_isr(patch: Patch) -> None:
    """Changes the ISR without a comparison: a deposed leader overwrites its successor."""
    real = isr.plan_isr_change

    def plan(image: ClusterImage, broker_epoch: int, change: IsrChange) -> GuardedPut | None:
        write = real(image, broker_epoch, change)
        return None if write is None else write._replace(compares=write.compares[1:])

    patch.setattr("cordwood.cluster.isr_writer.plan_isr_change", plan)


Switch = Callable[[Patch], None]

SWITCHES: list[tuple[Switch, Weather]] = [
    (counts_what_is_not_synced, CALM),
    (keeps_replicas_that_lost_their_power, POWER),
    (takes_an_empty_disk_for_the_old_one, DISKS),
    (cuts_followers_at_their_high_watermark, POWER),
    (leads_on_in_its_old_epoch, POWER),
    (commits_on_fewer_than_min_insync_replicas, CUTS),
    (commits_while_others_are_eligible, CUTS),
    (serves_without_a_lease, CUTS),
    (ignores_that_histories_diverged, CUTS),
    (acknowledges_what_only_the_leader_has, CALM),
    (lets_replicas_join_too_early, CUTS),
    (elects_anybody_who_lives, CUTS),
    (writes_rows_without_a_new_partition_epoch, CUTS),
    (elects_without_a_new_epoch, POWER),
]
RARE: list[tuple[Switch, Weather]] = [
    (counts_only_the_committed_isr, CUTS),
    (drops_a_change_of_unknown_outcome, CUTS),
    (takes_late_answers, CUTS),
    (keeps_the_dead_leader_in_charge_of_the_isr, CUTS),
]
"""Rules whose breach needs a rare sequence of events: hundreds of games."""


@pytest.mark.parametrize(("switch", "weather"), SWITCHES)
def test_the_game_notices_a_cluster_that(switch: Switch, weather: Weather, monkeypatch: Patch) -> None:
    switch(monkeypatch)
    assert any(_fails(seed, weather) for seed in range(MOST_GAMES)), f"{MOST_GAMES} games did not notice"


@pytest.mark.skipif(len(RARE) > SEEDS, reason="takes hundreds of games: CORDWOOD_REPLICATION_SEEDS=2000")
@pytest.mark.parametrize(("switch", "weather"), RARE)
def test_many_games_notice_a_cluster_that(switch: Switch, weather: Weather, monkeypatch: Patch) -> None:
    switch(monkeypatch)
    assert any(_fails(seed, weather) for seed in range(SEEDS)), f"{SEEDS} games did not notice"


def _fails(seed: int, weather: Weather) -> bool:
    try:
        play(seed, weather=weather)
    except SimulationFailed as failure:
        print(f"seed {seed}: {str(failure).splitlines()[0][:300]}")
        return True
    return False


@pytest.mark.parametrize("weather", [CALM, STORM, POWER, CUTS, DISKS])
def test_a_cluster_that_keeps_all_rules_gets_through_the_same_games(weather: Weather) -> None:
    play(0, weather=weather)

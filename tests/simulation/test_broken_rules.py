"""The simulator notices a cluster that breaks one rule of replication, in a scene or within a few games."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from simulation.game import SimulationFailed
from simulation.replication_game import play
from simulation.weather import FAULTS, Weather
from simulation.world.broken import InvariantBroken
from tests.simulation import scenes, switches
from tests.simulation.telling_seeds import telling_first

Patch = pytest.MonkeyPatch
MOST_GAMES = 40

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
RESTORES = replace(CALM, faults=("restored store", "kill"), rate=0.02)
MOVES = replace(CUTS, moves=True)
NEAR = replace(CUTS, near=True)
ROT = replace(CALM, faults=("bit rot", "bit rot", "kill", "power"), rate=0.02, rots=True)

Switch = Callable[[Patch], None]
Scene = Callable[[], None]

IN_GAMES: list[tuple[Switch, Weather]] = [
    (switches.counts_what_is_not_synced, CALM),
    (switches.keeps_replicas_that_lost_their_power, POWER),
    (switches.takes_an_empty_disk_for_the_old_one, DISKS),
    (switches.cuts_followers_at_their_high_watermark, POWER),
    (switches.leads_on_in_its_old_epoch, POWER),
    (switches.commits_on_fewer_than_min_insync_replicas, CUTS),
    (switches.commits_while_others_are_eligible, CUTS),
    (switches.serves_without_a_lease, CUTS),
    (switches.ignores_that_histories_diverged, CUTS),
    (switches.acknowledges_what_only_the_leader_has, CALM),
    (switches.lets_replicas_join_too_early, CUTS),
    (switches.elects_anybody_who_lives, CUTS),
    (switches.writes_rows_without_a_new_partition_epoch, CUTS),
    (switches.elects_without_a_new_epoch, POWER),
    (switches.registers_without_a_fence, DISKS),
    (switches.prefers_replicas_that_are_not_in_sync, CUTS),
    (switches.answers_followers_of_another_epoch, CUTS),
    (switches.leads_without_recording_its_epoch, CUTS),
    (switches.takes_the_leaders_high_watermark_as_it_is, CUTS),
    (switches.remembers_producers_of_records_that_were_cut, CUTS),
    (switches.starts_on_a_store_that_went_back, RESTORES),
    (switches.ends_moves_before_their_targets_are_in_sync, MOVES),
    (switches.repairs_nothing, ROT),
]
IN_SCENES: list[tuple[Switch, Scene]] = [
    (switches.counts_only_the_committed_isr, scenes.a_record_is_written_while_a_joining_replica_is_cut_off),
    (switches.drops_a_change_of_unknown_outcome, scenes.a_record_is_written_after_the_outcome_of_a_join_got_lost),
    (switches.keeps_the_dead_leader_in_charge_of_the_isr, scenes.a_change_of_a_deposed_leader_reaches_the_store_late),
    (switches.takes_late_answers, scenes.an_answer_of_an_earlier_leader_asks_for_a_cut),
    (
        switches.adds_replicas_of_an_earlier_registration,
        scenes.a_replica_is_asked_into_the_isr_and_loses_its_disk_before_the_store_hears_of_it,
    ),
    (switches.elects_without_candidates, scenes.the_only_replica_in_sync_loses_its_disk),
    (switches.follows_a_log_whose_end_is_in_doubt, scenes.a_broker_that_lost_a_log_starts_first),
    (switches.lets_old_fetches_vouch, scenes.a_leader_resumes_with_old_fetches_in_its_buffers),
    (
        switches.tells_its_end_before_it_knows_what_is_committed,
        scenes.a_leader_is_asked_for_its_end_before_its_followers_fetch,
    ),
    (switches.counts_followers_of_an_earlier_registration, scenes.a_fetch_of_an_earlier_registration_arrives_late),
    (switches.serves_on_without_its_row, scenes.a_leader_hears_that_its_row_is_gone),
    (switches.confirms_what_waited_without_authority, scenes.a_slow_disk_confirms_a_record_after_the_lease_has_ended),
    (switches.never_begins_anew, scenes.a_follower_is_behind_the_start_of_its_leaders_log),
    (
        switches.cuts_only_by_the_leaders_end,
        scenes.a_follower_wrote_in_an_epoch_that_its_leader_does_not_know,
    ),
    (
        switches.cuts_committed_records_without_a_recorded_loss,
        scenes.a_broker_is_elected_that_lacks_committed_records_and_nobody_says_so,
    ),
    (
        switches.elects_the_last_leader_whatever_others_have,
        scenes.all_lose_their_power_and_the_last_leader_loses_most,
    ),
    (
        switches.counts_fetches_of_a_replica_that_left,
        scenes.a_fetch_of_a_replica_that_left_arrives_when_it_has_come_back,
    ),
    (switches.acknowledges_deletions_that_only_the_leader_has, scenes.records_are_deleted_and_their_leader_dies),
    (
        switches.lets_replicas_join_with_records_that_were_deleted,
        scenes.a_replica_joins_that_was_away_when_records_were_deleted,
    ),
    (switches.shows_what_is_not_committed_at_followers, scenes.a_client_reads_at_a_follower_while_another_is_cut_off),
]


TELLING: dict[Switch, int] = {
    switches.keeps_replicas_that_lost_their_power: 8,
    switches.cuts_followers_at_their_high_watermark: 6,
    switches.commits_on_fewer_than_min_insync_replicas: 1,
    switches.commits_while_others_are_eligible: 6,
    switches.ignores_that_histories_diverged: 1,
    switches.elects_without_a_new_epoch: 4,
    switches.answers_followers_of_another_epoch: 2,
    switches.remembers_producers_of_records_that_were_cut: 27,
    switches.ends_moves_before_their_targets_are_in_sync: 4,
    switches.repairs_nothing: 1,
}
"""Seeds whose games notice at once what the first games do not."""


@pytest.mark.parametrize(("switch", "weather"), IN_GAMES)
def test_games_notice_a_cluster_that(switch: Switch, weather: Weather, monkeypatch: Patch) -> None:
    switch(monkeypatch)
    seeds = telling_first(TELLING.get(switch, 0), MOST_GAMES)
    assert any(_fails(seed, weather) for seed in seeds), f"{MOST_GAMES} games did not notice"


@pytest.mark.parametrize(("switch", "scene"), IN_SCENES)
def test_a_scene_shows_a_cluster_that(switch: Switch, scene: Scene, monkeypatch: Patch) -> None:
    scene()
    switch(monkeypatch)
    with pytest.raises(InvariantBroken, match="rule"):
        scene()


def _fails(seed: int, weather: Weather) -> bool:
    try:
        play(seed, weather=weather)
    except SimulationFailed as failure:
        print(f"seed {seed}: {str(failure).splitlines()[0][:300]}")
        return True
    return False


@pytest.mark.parametrize("weather", [CALM, STORM, POWER, CUTS, DISKS, RESTORES, MOVES, NEAR, ROT])
def test_a_cluster_that_keeps_all_rules_gets_through_the_same_games(weather: Weather) -> None:
    play(0, weather=weather)

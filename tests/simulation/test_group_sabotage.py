"""Who guards the guards: a coordinator of groups with a bug built in does not get through many games."""

from collections.abc import Callable
from typing import Any

import pytest
from simulation.group_game import PARTITIONS, play
from simulation.workloads.group_members import TOPIC
from tests.simulation.sabotage import Patch, assert_found_out

from cordwood.groups.classic import heartbeat, rebalance, sync
from cordwood.groups.classic.group import Group, find_in_generation
from cordwood.groups.classic.outbox import SyncAnswer
from cordwood.groups.classic.subscription import write_assignment
from cordwood.groups.consumer import heartbeat as consumer_heartbeat
from cordwood.groups.consumer import reconcile
from cordwood.groups.consumer.partition_sets import NOTHING
from cordwood.groups.shard import GroupShard
from cordwood.model.errors import ErrorCode
from cordwood.model.moment import Moment
from cordwood.node.coordinators import coordinator_log, coordinator_records
from cordwood.node.coordinators.coordinator_log import CoordinatorLog

AN_AGE_MS = 10**9


def later(now: Moment) -> Moment:
    return Moment(now.boot_ms + AN_AGE_MS, now.wall_ms + AN_AGE_MS)


def uses_a_generation_twice(patch: Patch) -> None:
    real = rebalance.complete

    def complete(group: Any, out: Any, now: Moment) -> None:
        group.generation = max(0, group.generation - 1)
        real(group, out, now)

    patch.setattr(rebalance, "complete", complete)


def gives_everything_to_everybody(patch: Patch) -> None:
    everything = write_assignment([(TOPIC, range(PARTITIONS))])
    patch.setattr(sync, "_share", lambda *_: SyncAnswer(ErrorCode.NONE, "consumer", "range", everything))


def gives_away_what_another_still_has(patch: Patch) -> None:
    def next_step(current: Any, target: Any, epoch: int, held_by_others: Any, owned: Any) -> Any:
        return reconcile.next_step(current, target, epoch, lambda _: NOTHING, owned)

    patch.setattr(consumer_heartbeat, "next_step", next_step)


def listens_to_every_generation(patch: Patch) -> None:
    def find(group: Any, member_id: str, instance_id: str | None, generation: int) -> Any:
        return find_in_generation(group, member_id, instance_id, group.generation)

    patch.setattr(heartbeat, "find_in_generation", find)


def takes_commits_from_anybody(patch: Patch) -> None:
    patch.setattr(GroupShard, "check_commit", lambda *_, **__: ErrorCode.NONE)


def forgets_positions_when_it_restarts(patch: Patch) -> None:
    real = coordinator_records.read_records
    patch.setattr(coordinator_log, "read_records", lambda chunk: ([], *real(chunk)[1:]))


def loads_the_log_from_its_end(patch: Patch) -> None:
    real = coordinator_records.read_records

    def read(chunk: Any) -> Any:
        batches, *others = real(chunk)
        return batches[::-1], *others

    patch.setattr(coordinator_log, "read_records", read)


def answers_before_it_is_safe(patch: Patch) -> None:
    patch.setattr(CoordinatorLog, "when_committed", lambda log, shard, done: done(ErrorCode.NONE))


def waits_for_the_dead(patch: Patch) -> None:
    real = Group.heard_of
    patch.setattr(Group, "heard_of", lambda group, member, now: real(group, member, later(now)))


def waits_for_the_dead_of_the_consumer_protocol(patch: Patch) -> None:
    real = consumer_heartbeat.heard_of

    def heard_of(group: Any, member_id: str, now: Moment, limits: Any) -> None:
        real(group, member_id, later(now), limits)

    patch.setattr(consumer_heartbeat, "heard_of", heard_of)


def tells_the_leader_alone(patch: Patch) -> None:
    real = sync._take_assignments

    def take(group: Any, assignments: Any, out: Any, *rest: Any) -> None:
        real(group, assignments, out, *rest)
        del out.syncs[1:]

    patch.setattr(sync, "_take_assignments", take)


TELLING: dict[Callable[[Patch], None], int] = {
    listens_to_every_generation: 18,
    answers_before_it_is_safe: 4,
    waits_for_the_dead: 6,
    waits_for_the_dead_of_the_consumer_protocol: 3,
    tells_the_leader_alone: 1,
}
"""Seeds whose games notice at once what the first games do not."""


@pytest.mark.parametrize(
    ("sabotage", "found"),
    [
        (uses_a_generation_twice, "partition"),
        (gives_everything_to_everybody, "is .*'s and .*'s"),
        (gives_away_what_another_still_has, "was given to|still a member|fenced"),
        (listens_to_every_generation, "fenced member, and took effect"),
        (takes_commits_from_anybody, "fenced member, and took effect"),
        (forgets_positions_when_it_restarts, "there is no position"),
        (loads_the_log_from_its_end, "went back"),
        (answers_before_it_is_safe, "position|owner"),
        (waits_for_the_dead, "after .* rounds"),
        (waits_for_the_dead_of_the_consumer_protocol, "after .* rounds"),
        (tells_the_leader_alone, "after .* rounds"),
    ],
)
def test_a_coordinator_with_a_bug_is_found_out(
    sabotage: Callable[[Patch], None], found: str, monkeypatch: Patch
) -> None:
    sabotage(monkeypatch)
    assert_found_out(play, found=found, telling=TELLING.get(sabotage, 0))

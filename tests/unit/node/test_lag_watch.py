"""The watch over lag: small steps, however much there is to look at."""

import pytest
from tests.unit.node.speaking import create_topic

from cordwood.groups.shard import GroupShard
from cordwood.node import lag_watch
from cordwood.simulation.world import World
from cordwood.wire.apis import ApiKey

GROUPS = 50


@pytest.mark.parametrize("room", [0, 10, GROUPS])
def test_positions_that_are_left_out_are_counted_in_small_steps_too(
    world: World, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(lag_watch, "MAX_WATCHED", room)
    create_topic(world)
    position = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [position]}]
    for number in range(GROUPS):
        answer = world.ask(ApiKey.OFFSET_COMMIT, 8, group_id=f"group-{number}", member_id="", topics=topics)
        assert answer.topics[0].partitions[0].error_code == 0
    shards: list[GroupShard] = []
    world.node.groups.visit_shards(shards.append, lambda error: None)
    world.settle()
    watch = world.node.lag_watch
    steps = sum(1 for _ in watch._sweep(shards))
    assert steps >= GROUPS
    assert (len(watch.positions), watch.left_out) == (room, GROUPS - room)


def test_samples_from_before_the_clock_was_set_do_not_come_back_with_a_look_that_was_half_done(world: World) -> None:
    create_topic(world)
    watch = world.node.lag_watch
    partition = world.node.partition("orders", 0)
    assert partition.replica is partition.opened
    world.advance(world.settings.lag_check_interval_ms)
    assert watch.traffic
    watch._steps = watch._sweep([])
    next(watch._steps)
    world.clock.jump(3_600_000)
    world.ask(ApiKey.METADATA, 12, topics=None)
    watch._continue(world.node.now_ms)
    assert watch._steps is None
    assert not watch.traffic

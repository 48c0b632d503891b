"""The watch over lag: small steps, however much there is to look at."""

import pytest
from tests.unit.node.speaking import create_topic, produce

from cordwood.groups.shard import GroupShard
from cordwood.node import lag_watch
from cordwood.records.build import build_batch
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
    watch._continue(world.node.now)
    assert watch._steps is None
    assert not watch.traffic


@pytest.mark.parametrize("ahead_ms", [1_800_000, None])
def test_a_record_waits_for_as_long_as_it_is_there_whatever_its_timestamp_says(
    world: World, ahead_ms: int | None
) -> None:
    create_topic(world)
    timestamp_ms = -1 if ahead_ms is None else world.clock.wall_ms + ahead_ms
    (answer,) = produce(world, "orders", bytes(build_batch([(timestamp_ms, None, b"value", ())])))
    assert answer.error_code == 0
    position = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [position]}]
    world.ask(ApiKey.OFFSET_COMMIT, 8, group_id="readers", member_id="", topics=topics)
    world.advance(600_000)
    [watched] = world.node.lag_watch.positions.values()
    assert watched.lag.lag_ms is not None
    assert 600_000 - 2 * world.settings.lag_check_interval_ms <= watched.lag.lag_ms <= 600_000

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

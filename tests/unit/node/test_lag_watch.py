"""The watch over lag: small steps, however much there is to look at."""

import pytest
from simulation.workloads.transactional_writers import TOPIC
from simulation.world.world import World
from tests.simulation.one_producer import Producer
from tests.unit.node.speaking import batch_of, create_topic, produce

from cordwood.groups.shard import GroupShard
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.node.duties import lag_watch
from cordwood.records.build import build_batch
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


@pytest.mark.parametrize("by_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_changes_no_rate(world: World, by_ms: int) -> None:
    create_topic(world)
    for _ in range(4):
        produce(world, "orders", batch_of(world, b"value"))
        world.advance(world.settings.lag_check_interval_ms)
    before = world.node.lag_watch.traffic[TopicPartition("orders", 0)].records_per_s
    assert before > 0
    world.clock.jump(by_ms)
    produce(world, "orders", batch_of(world, b"value"))
    world.advance(world.settings.lag_check_interval_ms)
    assert world.node.lag_watch.traffic[TopicPartition("orders", 0)].records_per_s == pytest.approx(before, rel=0.3)


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


def test_the_age_of_the_oldest_open_transaction_is_seen_until_it_ends(world: World) -> None:
    create_topic(world, TOPIC)
    name = TopicPartition(TOPIC, 0)
    sweep_ms = world.settings.lag_check_interval_ms
    producer = Producer(world, timeout_ms=900_000)

    def age_ms() -> int | None:
        oldest = world.node.lag_watch.traffic[name].oldest_transaction
        return None if oldest is None else world.clock.boot_ms - oldest.at_ms

    for _ in range(2):
        assert producer.add(0) is ErrorCode.NONE
        assert producer.write(9, b"value") is ErrorCode.NONE
        world.advance(2 * sweep_ms)
        assert age_ms() is not None
        world.advance(600_000)
        assert (age_ms() or 0) >= 600_000
        assert producer.end(commit=True) is ErrorCode.NONE
        world.advance(2 * sweep_ms)
        assert age_ms() is None

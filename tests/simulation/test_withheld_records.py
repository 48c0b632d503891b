"""A leader lacks committed records, and nobody recorded a loss: replicas that have them keep them, and wait for an
operator."""

import logging
from collections.abc import Iterator

import pytest
from simulation.game import FENCES_LIFTED_MS
from simulation.world.threads import Done, Work
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import (
    ROUND_MS,
    TOPIC,
    begin_produce,
    content,
    create,
    cut_off,
    elect,
    hosted,
    image,
    log,
    others,
)

from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.wire.apis import ApiKey

LONG_MS = 20_000


@pytest.fixture
def world() -> Iterator[World]:
    settings = {"replica.lag.time.max.ms": "1000"}
    world = World(seed=1, settings=settings, machines=3, clustered=True).start()
    world.advance(FENCES_LIFTED_MS)
    yield world
    world.kill()


def a_leader_without_records(world: World, *, lossy: bool = False, **configs: str) -> tuple[int, int]:
    """Has two of three replicas commit three records, and the third lead. Returns the third, and one that has them."""
    first = create(world, min_insync_replicas="2", **configs)
    second, third = others(first)
    cut_off(world, third)
    world.advance(LONG_MS)
    assert set(image(world, first).isr) == {first, second}
    for number in range(3):
        sent = begin_produce(world, first, b"%d" % number, key=b"key")
        world.advance(ROUND_MS)
        assert sent.answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    elect(world, third, isr=(third,), lossy=lossy)
    world.links.heal_all()
    world.advance(LONG_MS)
    assert log(world, third).offsets.end == 0
    return third, second


def writer_at(world: World, broker_id: int) -> MetadataWriter:
    life = world.machine_of(broker_id).life
    assert life is not None
    return life.metadata_writer


def accept_loss(world: World, at: int, broker_id: int | None = None) -> int:
    life = world.machine_of(at).life
    assert life is not None
    accepting = life.loop.create_task(life.metadata_writer.accept_loss(TOPIC, 0, broker_id))
    world.advance(LONG_MS)
    return accepting.result()


def withholds(world: World, broker_id: int) -> bool:
    return hosted(world, broker_id) in world.machine_of(broker_id).node.hosted.withheld


def set_aside(world: World, broker_id: int) -> list[str]:
    disk = world.machine_of(broker_id).disk
    return [name for name in disk.list_directories("/data") if name.startswith(TOPIC) and name.endswith("-stray")]


def test_replicas_keep_committed_records_that_a_new_leader_lacks_and_say_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        leader, keeper = a_leader_without_records(world)
    assert log(world, keeper).offsets.end == 3
    assert withholds(world, keeper)
    assert image(world, leader).isr == (leader,)
    assert f"broker {leader}, which leads, lacks committed records that are here: offsets 0 to 2" in caplog.text
    assert f"cordwood cluster accept-loss {TOPIC} 0" in caplog.text
    topic_id = hosted(world, keeper).topic_id
    assert writer_at(world, leader).image.brokers[keeper].withholds(topic_id, 0)


def test_a_replica_keeps_committed_records_over_a_clean_stop(world: World) -> None:
    _, keeper = a_leader_without_records(world)
    machine = world.machine_of(keeper)
    machine.stop()
    machine.start()
    world.advance(LONG_MS)
    assert log(world, keeper).offsets.end == 3
    assert withholds(world, keeper)


def test_a_kept_log_is_set_aside_and_filled_anew_when_the_loss_is_accepted(world: World) -> None:
    leader, keeper = a_leader_without_records(world)
    begin_produce(world, leader, b"of the leader", acks=1)
    assert accept_loss(world, at=leader) == leader
    assert set(image(world, leader).isr) == {1, 2, 3}
    for broker_id in others(leader):
        assert log(world, broker_id).offsets.end == 1
        (aside,) = set_aside(world, broker_id)
        assert any(name.endswith(".log") for name in world.machine_of(broker_id).disk.list(f"/data/{aside}"))
    assert not withholds(world, keeper)
    assert not writer_at(world, leader).image.brokers[keeper].withheld
    with pytest.raises(ProtocolError, match="is led by broker"):
        accept_loss(world, at=leader)


@pytest.mark.parametrize("kept_cleanly", [True, False], ids=["stopped", "killed"])
def test_a_kept_log_is_set_aside_though_its_broker_was_away_when_the_loss_was_accepted(
    world: World, kept_cleanly: bool
) -> None:
    leader, keeper = a_leader_without_records(world)
    begin_produce(world, leader, b"of the leader", acks=1)
    machine = world.machine_of(keeper)
    if kept_cleanly:
        machine.stop()
    else:
        machine.kill()
    accept_loss(world, at=leader)
    machine.start()
    world.advance(LONG_MS)
    assert log(world, keeper).offsets.end == 1
    (aside,) = set_aside(world, keeper)
    assert machine.disk.platter.read_bytes(f"/data/{aside}/{0:020}.log").count(b"of the leader") == 0


def test_a_replica_that_kept_committed_records_leads_if_the_operator_says_so(world: World) -> None:
    leader, keeper = a_leader_without_records(world)
    begin_produce(world, leader, b"of the leader", acks=1)
    assert accept_loss(world, leader, keeper) == keeper
    assert set(image(world, leader).isr) == {1, 2, 3}
    assert [log(world, broker_id).offsets.end for broker_id in (1, 2, 3)] == [3, 3, 3]
    assert not writer_at(world, leader).image.brokers[keeper].withheld


def test_a_kept_log_is_set_aside_when_the_partition_moves_to_other_brokers(world: World) -> None:
    leader, keeper = a_leader_without_records(world)
    move = {"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [leader]}]}
    moved = world.ask_at(leader, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[move], timeout_ms=1000)
    assert moved.responses[0].partitions[0].error_code == ErrorCode.NONE
    world.advance(LONG_MS)
    assert image(world, leader).replicas == (leader,)
    (aside,) = set_aside(world, keeper)
    assert any(name.endswith(".log") for name in world.machine_of(keeper).disk.list(f"/data/{aside}"))


def test_replicas_follow_a_leader_without_records_whose_loss_is_recorded(world: World) -> None:
    leader, _ = a_leader_without_records(world, lossy=True)
    assert set(image(world, leader).isr) == {1, 2, 3}
    assert [log(world, broker_id).offsets.end for broker_id in (1, 2, 3)] == [0, 0, 0]


def test_a_loss_is_accepted_only_where_a_replica_has_something_to_lose(world: World) -> None:
    leader = create(world)
    with pytest.raises(ProtocolError, match="is led by broker"):
        accept_loss(world, at=leader)


def test_a_compaction_under_way_leaves_the_log_alone_that_follows_a_given_up_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, keeper = a_leader_without_records(
        world, cleanup_policy="compact", segment_bytes="14", min_compaction_lag_ms="60000"
    )
    life = world.machine_of(keeper).life
    assert life is not None
    submit, compactions = life.workers.submit, list[tuple[Work, Done]]()

    def hold_the_compaction(work: Work, done: Done) -> None:
        if compactions or hosted(world, keeper).log_is_free:
            submit(work, done)
        else:
            compactions.append((work, done))

    monkeypatch.setattr(life.workers, "submit", hold_the_compaction)
    world.advance(80_000)
    (compaction,) = compactions
    for number in range(3):
        begin_produce(world, leader, b"of the leader, %d" % number, key=b"key", acks=1)
    accept_loss(world, at=leader)
    of_the_leader = content(log(world, leader))
    submit(*compaction)
    world.advance(1_000)
    assert content(log(world, keeper)) == of_the_leader

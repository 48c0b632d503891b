"""Lag of groups and traffic of topics in a cluster: each position is watched by the leader of its partition, whichever
broker is the group's coordinator, and a topic's traffic is that of all its partitions."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import ALL, ONE, ROUND_MS, THREE, TOPIC, begin_produce, elect, told
from tests.unit.node.two_brokers import run

from cordwood.cluster.metadata.rows import broker_key
from cordwood.cluster.stores.interface import Delete
from cordwood.lag.position import Standing
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.node.duties import watch_reports
from cordwood.node.loop.peers import PeerRequest
from cordwood.node.node import Node
from cordwood.wire.apis import ApiKey

SWEEP_MS = 5_000
PARTITIONS = 6
GROUP = "readers"


@pytest.fixture
def world() -> Iterator[World]:
    settings = {"lag.check.interval.ms": str(SWEEP_MS), "offsets.topic.num.partitions": "3"}
    world = World(seed=1, settings=settings, machines=3).start()
    world.settle()
    yield world
    world.kill()


def node(world: World, broker_id: int) -> Node:
    return world.machine_of(broker_id).node


def create(world: World, replicas: int = 1, **configs: str) -> None:
    topic = {
        "name": TOPIC,
        "num_partitions": PARTITIONS,
        "replication_factor": replicas,
        "configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()],
    }
    (answer,) = world.ask_at(ONE, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000).topics
    assert answer.error_code == 0, answer
    world.advance(ROUND_MS)


def leader_of(world: World, index: int) -> int:
    image = node(world, ONE).image
    return image.leadership(image.topics[TOPIC].partitions[index]).leader


def coordinator(world: World, group: str = GROUP) -> int:
    for _ in range(10):
        answer = world.ask_at(ONE, ApiKey.FIND_COORDINATOR, 2, key=group, key_type=0)
        if answer.error_code == 0:
            return int(answer.node_id)
        world.advance(ROUND_MS)
    raise AssertionError("there is no coordinator")


def commit(world: World, at: int, position: int = 0, group: str = GROUP) -> None:
    partitions = [
        {"partition_index": index, "committed_offset": position, "committed_metadata": ""}
        for index in range(PARTITIONS)
    ]
    topics = [{"name": TOPIC, "partitions": partitions}]
    answer = world.ask_at(at, ApiKey.OFFSET_COMMIT, 8, group_id=group, member_id="", topics=topics)
    assert {each.error_code for each in answer.topics[0].partitions} == {0}


def write(world: World, index: int, *values: bytes) -> None:
    assert told(begin_produce(world, leader_of(world, index), *values, index=index)) == "NONE"


def watched(world: World, group: str = GROUP) -> dict[int, list[tuple[int, Any]]]:
    """Who watches the group's position in each partition, and what it sees."""
    found: dict[int, list[tuple[int, Any]]] = {index: [] for index in range(PARTITIONS)}
    for broker_id in ALL:
        for (name, partition), seen in node(world, broker_id).lag_watch.positions.items():
            if name == group:
                found[partition.partition].append((broker_id, seen.lag))
    return found


def test_every_partition_of_a_group_is_watched_once_by_its_leader(world: World) -> None:
    create(world)
    assert {leader_of(world, index) for index in range(PARTITIONS)} == set(ALL)
    at = coordinator(world)
    for index in range(PARTITIONS):
        write(world, index, *[b"value"] * (index + 1))
    commit(world, at)
    world.advance(3 * SWEEP_MS)
    for index, seen in watched(world).items():
        assert [(broker_id, lag.lag_records) for broker_id, lag in seen] == [(leader_of(world, index), index + 1)]
    assert sum(node(world, broker_id).lag_watch.groups for broker_id in ALL) == 1
    assert all(node(world, broker_id).lag_watch.left_out == 0 for broker_id in ALL)


def test_a_loss_is_noticed_wherever_the_partition_is_led(world: World, caplog: pytest.LogCaptureFixture) -> None:
    create(world)
    at = coordinator(world)
    for index in range(PARTITIONS):
        write(world, index, b"a", b"b")
    commit(world, at)
    world.advance(3 * SWEEP_MS)
    for index in range(PARTITIONS):
        cut = {"name": TOPIC, "partitions": [{"partition_index": index, "offset": 2}]}
        world.ask_at(leader_of(world, index), ApiKey.DELETE_RECORDS, 2, topics=[cut], timeout_ms=1000)
    world.advance(3 * SWEEP_MS)
    for seen in watched(world).values():
        assert [(lag.standing, lag.lost_records) for _, lag in seen] == [(Standing.OVERTAKEN, 2)]
    assert sum(node(world, broker_id).lag_watch.overtaken_total for broker_id in ALL) == PARTITIONS
    said = [line for line in caplog.messages if line.startswith(f"group {GROUP} has lost up to 2 records of {TOPIC}-")]
    assert len(said) == len(ALL), "each leader says it once for all partitions of the group"
    for index in range(PARTITIONS):
        assert sum(f"{TOPIC}-{index}" in line for line in said) == 1


def test_the_watch_of_a_position_moves_with_the_leader(world: World) -> None:
    create(world, replicas=3)
    at = coordinator(world)
    write(world, 0, b"a", b"b")
    commit(world, at)
    world.advance(3 * SWEEP_MS)
    for successor in ALL:
        elect(world, successor)
        world.advance(5 * SWEEP_MS)
        assert [(broker_id, lag.lag_records) for broker_id, lag in watched(world)[0]] == [(successor, 2)]


def test_a_deleted_group_and_a_deleted_topic_are_watched_no_more(world: World) -> None:
    create(world)
    at = coordinator(world)
    commit(world, at)
    commit(world, coordinator(world, "others"), group="others")
    world.advance(3 * SWEEP_MS)
    assert all(watched(world).values())
    world.ask_at(at, ApiKey.DELETE_GROUPS, 1, groups_names=[GROUP])
    world.advance(6 * SWEEP_MS)
    assert not any(watched(world).values())
    assert all(watched(world, "others").values())
    world.ask_at(ONE, ApiKey.DELETE_TOPICS, 5, topic_names=[TOPIC], timeout_ms=1000)
    world.advance(6 * SWEEP_MS)
    assert not any(watched(world, "others").values())
    assert not any(node(world, broker_id).watch_reports.received for broker_id in ALL)


def test_positions_that_a_leader_does_not_take_are_counted(world: World) -> None:
    create(world)
    at = coordinator(world)
    commit(world, at)
    deaf = next(broker_id for broker_id in ALL if broker_id != at)
    router = node(world, deaf)._router
    router._served = {key: served for key, served in router._served.items() if key != ApiKey.WATCH_REPORT}
    world.advance(4 * SWEEP_MS)
    assert node(world, at).lag_watch.left_out == sum(leader_of(world, index) == deaf for index in range(PARTITIONS))


def test_reports_are_split_and_positions_without_room_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_reports, "ENTRIES_PER_REPORT", 2)
    create(world)
    for number in range(5):
        commit(world, coordinator(world, f"group-{number}"), group=f"group-{number}")
    world.advance(4 * SWEEP_MS)
    for number in range(5):
        assert all(len(seen) == 1 for seen in watched(world, f"group-{number}").values())
    monkeypatch.setattr(watch_reports, "MOST_RECEIVED", 1)
    for broker_id in ALL:
        node(world, broker_id).watch_reports.received.clear()
    world.advance(4 * SWEEP_MS)
    assert any(node(world, broker_id).lag_watch.left_out for broker_id in ALL)


def test_a_report_in_another_broker_epoch_is_refused(world: World) -> None:
    values = {"broker_id": THREE, "broker_epoch": 10_000, "valid_for_ms": 1000, "groups": [], "traffic": []}
    answer = world.ask_at(ONE, ApiKey.WATCH_REPORT, 0, **values)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


def skews(world: World) -> list[float]:
    return [skew for broker_id in ALL for skew in node(world, broker_id).lag_watch.skews.values()]


def shares(world: World) -> dict[int, float]:
    found = {}
    for broker_id in ALL:
        watch = node(world, broker_id).lag_watch
        for name, seen in watch.traffic.items():
            if name.topic == TOPIC and watch.topics.get(TOPIC):
                found[name.partition] = seen.bytes_per_s / watch.topics[TOPIC]
    return found


def test_a_topic_with_even_traffic_over_brokers_has_no_skew(world: World) -> None:
    create(world)
    for _ in range(8):
        for index in range(PARTITIONS):
            write(world, index, b"value")
        world.advance(SWEEP_MS)
    assert skews(world) == [pytest.approx(1.0, rel=0.1)]
    assert shares(world) == {index: pytest.approx(1 / PARTITIONS, rel=0.1) for index in range(PARTITIONS)}


def test_the_skew_of_a_topic_counts_the_partitions_of_all_brokers(world: World) -> None:
    create(world)
    for _ in range(8):
        for index in range(PARTITIONS):
            for _ in range(10 if index == 3 else 1):
                write(world, index, b"value")
        world.advance(SWEEP_MS)
    assert skews(world) == [pytest.approx(10, rel=0.1)]
    assert shares(world)[3] == pytest.approx(10 / 15, rel=0.1)


def test_without_the_traffic_of_a_leader_there_is_no_skew_and_without_a_leader_there_is_none_to_wait_for(
    world: World,
) -> None:
    create(world)
    collector = leader_of(world, 0)
    silent = next(broker_id for broker_id in ALL if broker_id != collector)
    node(world, silent).lag_watch.schedule = lambda now: None  # type: ignore[method-assign]
    for _ in range(8):
        for index in range(PARTITIONS):
            write(world, index, b"value")
        world.advance(SWEEP_MS)
    assert skews(world) == []
    assert run(world.store.txn((), [Delete(broker_key(silent))])).succeeded
    for _ in range(3):
        write(world, 0, b"value")
        world.advance(SWEEP_MS)
    assert len(skews(world)) == 1


def test_a_broker_keeps_nothing_of_topics_that_it_does_not_know(world: World) -> None:
    create(world)
    known = node(world, ONE).image.topics[TOPIC].topic_id
    reports = node(world, ONE).watch_reports
    values = {
        "broker_id": THREE,
        "broker_epoch": node(world, ONE).image.broker_epochs[THREE],
        "valid_for_ms": 2**31 - 1,
        "groups": [
            {"group_id": "g", "topics": [{"topic_id": known, "partitions": [{"partition": 999, "position": 1}]}]}
        ],
        "traffic": [{"topic_id": known, "partitions": [{"partition": 999, "bytes_per_second": float("nan")}]}],
    }
    answers: list[Any] = []
    request: PeerRequest[Any] = PeerRequest(ONE, ApiKey.WATCH_REPORT, (0, 0), values, SWEEP_MS)
    node(world, THREE).peers.send(request, lambda outcome, now: answers.append(outcome))
    world.settle()
    assert [answer.body.error_code for answer in answers] == [0]
    world.advance(SWEEP_MS)
    assert ("g", TopicPartition(TOPIC, 999)) not in node(world, ONE).lag_watch.positions
    world.advance(40 * reports.holds_for_ms)
    assert reports.received == {}

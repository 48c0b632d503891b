"""Three brokers, and bytes that rot on one of them: the scrub finds the damage, another replica's batches mend it."""

import logging
from collections.abc import Iterator

import pytest
from simulation.world.life import DATA_DIRECTORY
from simulation.world.links import STORE
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import (
    ALL,
    ROUND_MS,
    TOPIC,
    begin_produce,
    create,
    cut_off,
    elect,
    heal,
    log,
    others,
    read,
    told,
)

from cordwood.model.errors import ErrorCode
from cordwood.node.duties.scrub import FIRST_AFTER_MS
from cordwood.node.replication.repair import SOON_MS
from cordwood.segments.names import Suffix, segment_file_name
from cordwood.wire.apis import ApiKey

BATCHES = 12
SCRUBBED_MS = FIRST_AFTER_MS + 70_000
"""A whole pass of the scrub, and the first attempts of a repair."""


@pytest.fixture
def world() -> Iterator[World]:
    settings = {"log.flush.offset.checkpoint.interval.ms": "1000", "log.scrub.interval.ms": "20000"}
    world = World(seed=1, settings=settings, machines=3, scrubbed=True).start()
    world.settle()
    yield world
    world.kill()


def fill(world: World, leader: int, first: int = 0, count: int = BATCHES) -> None:
    """Batches of two records, two in each segment; the last segment stays open."""
    for number in range(first, first + count):
        sent = begin_produce(world, leader, b"%03d a" % number * 30, b"%03d b" % number * 30)
        world.advance(600)
        assert told(sent) == "NONE"
    world.advance(2 * ROUND_MS)


def path_of(world: World, broker_id: int, place: int) -> str:
    base_offset = log(world, broker_id).segments[place].base_offset
    return f"{DATA_DIRECTORY}/{TOPIC}-0/{segment_file_name(base_offset, Suffix.LOG)}"


def rot(world: World, broker_id: int, place: int, position: int = 100, with_bytes: bytes = b"\xff\xff") -> None:
    world.machine_of(broker_id).disk.platter.corrupt(path_of(world, broker_id, place), position, with_bytes)


def damage(world: World, broker_id: int) -> list[tuple[int, int]]:
    answer = world.ask_at(broker_id, ApiKey.DAMAGE_LIST, 1, topics=None)
    return [(each.first_offset, each.end_offset) for each in answer.findings]


def repairs(world: World, broker_id: int) -> list[tuple[int, int, tuple[int, ...]]]:
    answer = world.ask_at(broker_id, ApiKey.DAMAGE_LIST, 1, topics=None)
    return [(each.first_offset, each.end_offset, tuple(each.broker_ids)) for each in answer.repairs]


def not_repaired(world: World, broker_id: int) -> str:
    (finding,) = world.ask_at(broker_id, ApiKey.DAMAGE_LIST, 1, topics=None).findings
    why: str = finding.not_repaired
    return why


def segments(world: World, broker_id: int) -> list[bytes]:
    """The log files as they are on the disk."""
    disk = world.machine_of(broker_id).disk
    return [
        disk.platter.read_bytes(path_of(world, broker_id, place))
        for place in range(len(log(world, broker_id).segments))
    ]


@pytest.mark.parametrize("position", [0, 5, 8, 11, 17, 23, 60, 100])
def test_a_follower_mends_its_log_with_its_leaders_batches(
    world: World, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cordwood.scrub")
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    follower = others(leader)[0]
    sound = segments(world, follower)
    rot(world, follower, 1, position)
    assert segments(world, follower) != sound
    world.advance(SCRUBBED_MS)
    assert segments(world, follower) == sound == segments(world, leader)
    assert damage(world, follower) == []
    ((first, end, brokers),) = repairs(world, follower)
    assert brokers == (leader,)
    assert end - first == 2
    assert f"{TOPIC}-0: offsets {first} to {end - 1} are repaired from broker {leader}" in caplog.text
    elect(world, follower)
    world.advance(ROUND_MS)
    assert read(world, follower, first).error_code == 0
    world.machine_of(follower).kill()
    world.machine_of(follower).start()
    assert repairs(world, follower) == [(first, end, (leader,))]


def test_a_leader_mends_its_log_with_a_followers_batches_and_serves_the_rest_meanwhile(world: World) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    sound = segments(world, leader)
    for other in others(leader):
        world.links.cut(leader, other)
        world.links.cut(other, leader)
    rot(world, leader, 1)
    first = log(world, leader).segments[1].base_offset
    world.advance(SCRUBBED_MS)
    (bad,) = damage(world, leader)
    assert read(world, leader, bad[0]).error_code == ErrorCode.CORRUPT_MESSAGE
    assert read(world, leader, bad[1]).error_code == 0
    assert bad[0] == first
    for other in others(leader):
        world.links.heal(leader, other)
        world.links.heal(other, leader)
    world.advance(SCRUBBED_MS)
    assert segments(world, leader) == sound
    assert [(each[:2]) for each in repairs(world, leader)] == [bad]
    assert read(world, leader, first).error_code == 0


def test_the_cluster_knows_of_damage_until_it_is_repaired(world: World) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    follower, other = others(leader)
    cut_off(world, follower)
    rot(world, follower, 1)
    world.advance(SCRUBBED_MS)
    topic_id = world.machine_of(other).node.image.topics[TOPIC].topic_id

    def known() -> bool:
        return world.machine_of(other).node.image.brokers[follower].is_damaged(topic_id, 0)

    assert known()
    heal(world, follower)
    world.advance(SCRUBBED_MS)
    assert damage(world, follower) == []
    assert not known()


def test_damage_in_records_that_the_other_replicas_have_deleted_stays_until_they_are_deleted_again(
    world: World,
) -> None:
    """Retention on one replica may run ahead, so a leader does not take the log start of a follower over."""
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    for other in others(leader):
        log(world, other).delete_records_before(4)
    rot(world, leader, 0)
    world.advance(SCRUBBED_MS)
    assert "it does not have these offsets" in not_repaired(world, leader)
    partitions = [{"partition_index": 0, "offset": 4}]
    world.ask_at(leader, ApiKey.DELETE_RECORDS, 2, topics=[{"name": TOPIC, "partitions": partitions}], timeout_ms=1000)
    world.advance(SCRUBBED_MS)
    assert damage(world, leader) == []


def test_the_cluster_hears_of_a_repair_although_it_could_not_be_told_of_the_damage_at_once(world: World) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    follower, other = others(leader)
    cut_off(world, follower)
    rot(world, follower, 1)
    while not damage(world, follower):
        world.advance(SOON_MS // 2)
    world.links.cut(follower, STORE)
    world.advance(2 * SOON_MS)
    world.links.heal(follower, STORE)
    world.advance(ROUND_MS)
    assert world.machine_of(other).node.image.brokers[follower].damaged
    heal(world, follower)
    world.advance(SCRUBBED_MS)
    assert damage(world, follower) == []
    assert not world.machine_of(other).node.image.brokers[follower].damaged


def test_a_repair_is_tried_soon_after_brokers_came_and_went(world: World) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    sound = segments(world, leader)
    cut_off(world, leader)
    rot(world, leader, 1)
    world.advance(SCRUBBED_MS)
    assert not_repaired(world, leader) == "no other in-sync replica is running"
    other = world.machine_of(others(leader)[0])
    for _ in range(8):
        other.kill()
        world.advance(500)
        other.start()
        world.advance(500)
    heal(world, leader)
    world.advance(30_000)
    assert segments(world, leader) == sound


def test_a_whole_segment_that_was_emptied_comes_back(world: World) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    follower = others(leader)[1]
    sound = segments(world, follower)
    world.machine_of(follower).kill()
    world.machine_of(follower).disk.platter.cut(f"{DATA_DIRECTORY}/{TOPIC}-0/{segment_file_name(4, Suffix.LOG)}", 0)
    world.machine_of(follower).start()
    world.advance(SCRUBBED_MS)
    assert segments(world, follower) == sound


@pytest.mark.parametrize("left", [0, 30, 200, 500])
@pytest.mark.parametrize("leads", [False, True])
def test_a_segment_that_is_cut_short_under_a_running_broker_comes_back(world: World, leads: bool, left: int) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    victim = leader if leads else others(leader)[0]
    sound = segments(world, victim)
    assert len(sound[1]) > 500
    world.machine_of(victim).disk.platter.cut(path_of(world, victim, 1), left)
    world.advance(SCRUBBED_MS)
    assert segments(world, victim) == sound
    assert damage(world, victim) == []


def test_a_batch_into_which_the_start_of_the_log_was_moved_comes_back(world: World) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    deleted = {"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 1}]}
    world.ask_at(leader, ApiKey.DELETE_RECORDS, 2, topics=[deleted], timeout_ms=1000)
    world.advance(2 * ROUND_MS)
    follower = others(leader)[0]
    assert log(world, follower).offsets.start == 1
    sound = segments(world, follower)
    rot(world, follower, 0)
    world.advance(SCRUBBED_MS)
    assert segments(world, follower) == sound
    assert damage(world, follower) == []


@pytest.mark.parametrize("clean", [True, False])
def test_first_segments_that_are_missing_at_a_start_come_back(
    world: World, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    machine = world.machine_of(others(leader)[1])
    sound = b"".join(segments(world, machine.broker_id))
    if clean:
        machine.stop()
    else:
        machine.kill()
    for base_offset in (0, 4):
        machine.disk.platter.remove(f"{DATA_DIRECTORY}/{TOPIC}-0/{segment_file_name(base_offset, Suffix.LOG)}")
    machine.start()
    world.advance(SCRUBBED_MS)
    assert f"{TOPIC}-0: offsets 0 to 7 are damaged" in caplog.text
    assert b"".join(segments(world, machine.broker_id)) == sound
    assert repairs(world, machine.broker_id) == [(0, 8, (leader,))]


def test_two_damaged_batches_of_a_segment_come_from_the_replicas_that_have_each(world: World) -> None:
    leader = create(world, segment_bytes="1800")
    fill(world, leader)
    one, two = others(leader)
    sound = segments(world, leader)
    size = len(sound[1]) // 4
    for position in (100, 2 * size + 100):
        rot(world, leader, 1, position)
    rot(world, one, 1, 100)
    rot(world, two, 1, 2 * size + 100)
    world.advance(3 * SCRUBBED_MS)
    assert segments(world, leader) == segments(world, one) == segments(world, two) == sound
    assert [damage(world, broker_id) for broker_id in ALL] == [[], [], []]


def test_damage_that_every_replica_has_stays_and_is_explained(world: World) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    for broker_id in ALL:
        rot(world, broker_id, 1)
    damaged = [segments(world, broker_id) for broker_id in ALL]
    world.advance(SCRUBBED_MS)
    assert [segments(world, broker_id) for broker_id in ALL] == damaged
    for broker_id in ALL:
        assert damage(world, broker_id) == [(4, 6)]
        assert "its bytes are damaged as well" in not_repaired(world, broker_id)


def test_the_open_segment_is_mended_once_it_is_closed(world: World) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader, count=5)
    follower = others(leader)[0]
    rot(world, follower, -1)
    world.advance(SCRUBBED_MS)
    assert damage(world, follower) == [], "the scrub reads closed segments"
    fill(world, leader, 5, 5)
    world.advance(SCRUBBED_MS)
    assert segments(world, follower) == segments(world, leader)
    assert [each[2] for each in repairs(world, follower)] == [(leader,)]


def test_a_segment_that_was_opened_again_is_mended_though_nobody_writes(world: World) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader, count=2)
    follower = others(leader)[0]
    log(world, follower).roll()
    world.advance(ROUND_MS)
    cut_off(world, follower)
    rot(world, follower, -1)
    world.advance(SCRUBBED_MS)
    assert len(damage(world, follower)) == 1
    world.machine_of(follower).kill()
    heal(world, follower)
    world.machine_of(follower).start()
    world.advance(SCRUBBED_MS)
    assert damage(world, follower) == []
    assert segments(world, follower) == segments(world, leader)
    fill(world, leader, 2, 3)
    assert b"".join(segments(world, follower)) == b"".join(segments(world, leader))


def test_a_follower_takes_no_damaged_batch_and_has_its_leader_mended_without_a_scrub(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {
        "log.flush.offset.checkpoint.interval.ms": "1000",
        "log.scrub.bytes.per.second": "0",
        "replica.lag.time.max.ms": "3000",
    }
    world = World(seed=1, settings=settings, machines=3, scrubbed=True).start()
    world.settle()
    leader = create(world, segment_bytes="900")
    fill(world, leader, count=2)
    slow, _ = others(leader)
    cut_off(world, slow)
    world.advance(10_000)
    fill(world, leader, 2)
    sound = segments(world, leader)
    rot(world, leader, 2, 400)
    heal(world, slow)
    world.advance(60_000)
    assert segments(world, leader) == segments(world, slow) == sound
    assert f"{TOPIC}-0: broker {leader} sent records: " in caplog.text
    assert repairs(world, leader)
    sent = [record for record in caplog.records if "sent records" in record.getMessage()]
    assert len(sent) <= 2, "a refused answer is not asked for again at once"
    world.kill()


def test_a_topic_that_is_deleted_in_the_middle_of_a_repair_holds_up_no_other_repair(world: World) -> None:
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    follower = others(leader)[0]
    cut_off(world, follower)
    rot(world, follower, 1)
    while not damage(world, follower):
        world.advance(1_000)
    world.advance(3_000)
    assert damage(world, follower), "the repair waits for an answer"
    assert (
        world.ask_at(leader, ApiKey.DELETE_TOPICS, 5, topic_names=[TOPIC], timeout_ms=1000).responses[0].error_code == 0
    )
    world.advance(ROUND_MS)
    heal(world, follower)
    world.advance(ROUND_MS)
    leader = create(world, segment_bytes="900")
    fill(world, leader)
    follower = others(leader)[0]
    sound = segments(world, follower)
    rot(world, follower, 1)
    world.advance(2 * SCRUBBED_MS)
    assert segments(world, follower) == sound
    assert [each[2] for each in repairs(world, follower)] == [(leader,)]

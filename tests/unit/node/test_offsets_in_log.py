"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: where things are in a log, and where it begins."""

from typing import Any

import pytest
from simulation.world.exchange import State
from simulation.world.world import World
from tests.unit.node.speaking import alter_topic, batch_of, create_topic, error, fetch, fill, only, produce, values_in

from cordwood.records.batch import CRC_POSITION, CRC_START, TIMESTAMP_TYPE_BIT
from cordwood.records.build import build_batch
from cordwood.records.checksum import crc32c
from cordwood.wire.apis import ApiKey

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
NOWHERE = (0, -1, -1)
ATTRIBUTES_LOW_BYTE = 22


def list_offsets(world: World, timestamp: int, version: int = 11, index: int = 0, **options: Any) -> tuple[Any, ...]:
    """(error, offset, timestamp) of one partition of `orders`."""
    epoch = options.pop("current_leader_epoch", -1)
    asked = {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
    topics = [{"name": "orders", "partitions": [asked]}]
    answer = world.ask(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=topics, **options)
    ((part,),) = [topic.partitions for topic in answer.topics]
    return part.error_code, part.offset, part.timestamp


def fill_at(world: World, *timestamps: int) -> None:
    for timestamp in timestamps:
        batch = bytes(build_batch([(timestamp, b"key", b"value", ())]))
        assert produce(world, "orders", batch)[0].error_code == 0


@pytest.mark.parametrize("version", range(1, 12))
def test_the_ends_are_told_in_every_version(world: World, version: int) -> None:
    create_topic(world)
    fill(world, "orders", b"a", b"b", b"c")
    delete_records(world, 1)
    assert list_offsets(world, LATEST, version) == (0, 3, -1)
    assert list_offsets(world, EARLIEST, version) == (0, 1, -1)
    for isolation_level in (0, 1):
        if version >= 2:
            assert list_offsets(world, LATEST, version, isolation_level=isolation_level) == (0, 3, -1)


def test_a_timestamp_finds_the_first_record_that_is_as_late(world: World) -> None:
    create_topic(world)
    now_ms = world.clock.wall_ms
    fill_at(world, now_ms - 50, now_ms - 30, now_ms - 40, now_ms - 10)
    assert list_offsets(world, now_ms - 60) == (0, 0, now_ms - 50)
    assert list_offsets(world, now_ms - 35) == (0, 1, now_ms - 30)
    assert list_offsets(world, now_ms - 29) == (0, 3, now_ms - 10)
    assert list_offsets(world, now_ms) == NOWHERE


def test_a_batch_that_nobody_can_open_hides_nothing_from_who_asks_by_time(world: World) -> None:
    """Its header promises what its records do not keep: one of them has a time that no answer has room for."""
    create_topic(world)
    now_ms = world.clock.wall_ms
    rows = [(time_ms, b"key", b"value", ()) for time_ms in (now_ms - 45, now_ms - 45 + 2**63 - 1)]
    batch = build_batch(rows, log_append_time_ms=now_ms)
    batch[ATTRIBUTES_LOW_BYTE] &= ~TIMESTAMP_TYPE_BIT
    batch[CRC_POSITION : CRC_POSITION + 4] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    fill_at(world, now_ms - 50)
    assert produce(world, "orders", bytes(batch))[0].error_code == 0
    fill_at(world, now_ms + 10)
    assert list_offsets(world, now_ms - 40) == (0, 1, now_ms)
    assert list_offsets(world, now_ms + 1) == (0, 3, now_ms + 10)
    assert list_offsets(world, now_ms - 60) == (0, 0, now_ms - 50)


def test_the_largest_timestamp_is_found_wherever_it_is(world: World) -> None:
    create_topic(world)
    assert list_offsets(world, MAX_TIMESTAMP) == NOWHERE
    now_ms = world.clock.wall_ms
    fill_at(world, now_ms - 50, now_ms - 10, now_ms - 40)
    assert list_offsets(world, MAX_TIMESTAMP) == (0, 1, now_ms - 10)


def test_nothing_is_tiered(world: World) -> None:
    create_topic(world)
    fill(world, "orders", b"a")
    assert list_offsets(world, EARLIEST_LOCAL) == (0, 0, -1)
    assert list_offsets(world, LATEST_TIERED) == NOWHERE
    assert list_offsets(world, EARLIEST_PENDING_UPLOAD) == NOWHERE


@pytest.mark.parametrize(
    ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING_UPLOAD, 11)]
)
def test_special_timestamps_are_unknown_before_their_version(world: World, timestamp: int, since: int) -> None:
    create_topic(world)
    code, offset, _ = list_offsets(world, timestamp, since - 1)
    assert (error(code), offset) == ("UNSUPPORTED_VERSION", -1)
    assert list_offsets(world, timestamp, since)[0] == 0


def test_a_timestamp_that_means_nothing_is_refused(world: World) -> None:
    create_topic(world)
    assert error(list_offsets(world, -7)[0]) == "UNSUPPORTED_VERSION"


def test_only_what_is_durable_counts_as_the_end(world: World) -> None:
    create_topic(world)
    batch = batch_of(world)
    sent = {"name": "orders", "partition_data": [{"index": 0, "records": batch}]}
    world.connect().request(ApiKey.PRODUCE, 9, {"acks": -1, "timeout_ms": 1000, "topic_data": [sent]})
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    values = {"replica_id": -1, "topics": [{"name": "orders", "partitions": [asked]}]}
    exchange = world.connect().request(ApiKey.LIST_OFFSETS, 7, values)
    for _ in range(2):
        world.do(dict(world.steps())["request"])
    assert exchange.answer.topics[0].partitions[0].offset == 0


def test_unknown_partitions_wrong_epochs_and_questions_asked_twice_are_refused(world: World) -> None:
    create_topic(world)
    assert error(list_offsets(world, LATEST, index=5)[0]) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error(list_offsets(world, LATEST, current_leader_epoch=9)[0]) == "UNKNOWN_LEADER_EPOCH"
    asked = {"partition_index": 0, "timestamp": LATEST}
    topics = [{"name": "orders", "partitions": [asked, asked]}]
    answer = world.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)
    assert [error(part.error_code) for part in answer.topics[0].partitions] == ["NONE", "INVALID_REQUEST"]


def test_no_questions_get_no_answers(world: World) -> None:
    assert world.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[]).topics == []


# OffsetForLeaderEpoch


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch_is_where_the_next_began(world: World, version: int) -> None:
    create_topic(world)
    epochs = []
    for count in (2, 3):
        epochs.append(world.node.hosted.leader("orders", 0).role.leader_epoch)
        fill(world, "orders", *[b"a"] * count)
        world.stop()
        world.start()
    now = world.node.hosted.leader("orders", 0).role.leader_epoch

    def end_of(epoch: int, current: int = -1) -> tuple[str, int, int]:
        asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        topics = [{"topic": "orders", "partitions": [asked]}]
        answer = world.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1, topics=topics)
        part = answer.topics[0].partitions[0]
        return error(part.error_code), part.leader_epoch, part.end_offset

    assert end_of(epochs[0]) == ("NONE", epochs[0], 2)
    assert end_of(epochs[1]) == ("NONE", epochs[1], 5)
    assert end_of(now) == ("NONE", now, 5)
    assert end_of(now + 1) == ("NONE", -1, -1)
    assert end_of(now, current=now - 1) == ("FENCED_LEADER_EPOCH", -1, -1)
    assert end_of(now, current=now + 1) == ("UNKNOWN_LEADER_EPOCH", -1, -1)


# DeleteRecords


def delete_records(world: World, offset: int, version: int = 2, index: int = 0) -> tuple[str, int]:
    topics = [{"name": "orders", "partitions": [{"partition_index": index, "offset": offset}]}]
    answer = world.ask(ApiKey.DELETE_RECORDS, version, topics=topics, timeout_ms=1000)
    part = answer.topics[0].partitions[0]
    return error(part.error_code), part.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_log_begins_where_it_is_told_to_and_survivors_keep_their_offsets(world: World, version: int) -> None:
    create_topic(world)
    fill(world, "orders", b"a", b"b", b"c")
    assert delete_records(world, 2, version) == ("NONE", 2)
    assert values_in(only(fetch(world, ("orders", 0, 2)))) == [b"c"]
    assert error(only(fetch(world, ("orders", 0, 1))).error_code) == "OFFSET_OUT_OF_RANGE"
    assert delete_records(world, 1, version) == ("NONE", 2)


def test_minus_one_means_all_that_is_visible(world: World) -> None:
    create_topic(world)
    fill(world, "orders", b"a", b"b")
    assert delete_records(world, -1) == ("NONE", 2)
    fill(world, "orders", b"c")
    assert values_in(only(fetch(world, ("orders", 0, 2)))) == [b"c"]


@pytest.mark.parametrize("offset", [3, -2])
def test_records_cannot_be_deleted_beyond_the_end(world: World, offset: int) -> None:
    create_topic(world)
    fill(world, "orders", b"a", b"b")
    assert delete_records(world, offset) == ("OFFSET_OUT_OF_RANGE", -1)
    assert delete_records(world, 0, index=1) == ("UNKNOWN_TOPIC_OR_PARTITION", -1)


def test_compacted_topics_lose_records_by_tombstones_only(world: World) -> None:
    create_topic(world, cleanup_policy="compact")
    fill(world, "orders", b"a")
    assert delete_records(world, 1) == ("POLICY_VIOLATION", -1)
    alter_topic(world, "orders", cleanup_policy="compact,delete")
    assert delete_records(world, 1) == ("NONE", 1)


def test_what_was_deleted_stays_deleted_after_a_power_cut(world: World) -> None:
    create_topic(world)
    fill(world, "orders", b"a", b"b")
    assert delete_records(world, 1) == ("NONE", 1)
    world.lose_power()
    world.start()
    assert list_offsets(world, EARLIEST) == (0, 1, -1)


def test_a_deletion_that_is_not_durable_is_not_answered_as_one(world: World) -> None:
    """Seed 1156: a save that had failed made an earlier one look done."""
    create_topic(world)
    fill(world, "orders", b"a", b"b")
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}]
    exchanges = [
        world.connect().request(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout_ms": 1000}) for _ in range(2)
    ]
    for _ in exchanges:
        world.do(dict(world.steps())["request"])
    assert world.life is not None
    earlier, later = world.life.workers.jobs
    world.disk.platter.free_for_appends = 0
    later.do()
    earlier.do()
    world.settle()
    answers = [error(each.answer.topics[0].partitions[0].error_code) for each in exchanges]
    assert answers == ["KAFKA_STORAGE_ERROR"] * 2
    assert all(each.state is State.ANSWERED for each in exchanges)

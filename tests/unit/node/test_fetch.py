"""Fetch: what a reader gets, how much of it and when; what it is told if it cannot be had."""

import pytest
from simulation.world.exchange import State
from simulation.world.threads import Job
from simulation.world.world import World
from tests.unit.node.speaking import (
    batch_of,
    begin_fetch,
    create_topic,
    delete_topic,
    error,
    fetch,
    fetch_values,
    fill,
    only,
    produce,
    produce_values,
    values_in,
)

from cordwood.model.identifiers import TopicId
from cordwood.node.requests.early_answers import MOST_IN_WINDOW
from cordwood.wire.apis import ApiKey

ALL_VERSIONS = range(4, 19)
READ_COMMITTED = 1


@pytest.mark.parametrize("version", ALL_VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, READ_COMMITTED])
def test_records_are_read_in_every_version(world: World, version: int, isolation_level: int) -> None:
    topic = create_topic(world)
    fill(world, "orders", b"a", b"b")
    asked = (topic if version >= 13 else "orders", 0, 1)
    part = only(fetch(world, asked, version=version, isolation_level=isolation_level))
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 2, 2)
    assert values_in(part) == [b"b"]
    if isolation_level == READ_COMMITTED:
        assert part.aborted_transactions == []


def test_the_batch_that_holds_the_offset_comes_whole(world: World) -> None:
    create_topic(world)
    produce(world, "orders", batch_of(world, b"a", b"b", b"c"))
    assert values_in(only(fetch(world, ("orders", 0, 2)))) == [b"a", b"b", b"c"]


def test_several_partitions_of_several_topics_are_read_together(world: World) -> None:
    create_topic(world, partitions=2)
    create_topic(world, "returns")
    fill(world, "orders", b"a", index=0)
    fill(world, "orders", b"b", index=1)
    fill(world, "returns", b"c")
    answer = fetch(world, ("orders", 0, 0), ("orders", 1, 0), ("returns", 0, 0))
    assert [[values_in(part) for part in topic.partitions] for topic in answer.responses] == [
        [[b"a"], [b"b"]],
        [[b"c"]],
    ]


# How much


def test_the_first_batch_comes_even_if_it_is_larger_than_allowed_and_no_second_one(world: World) -> None:
    create_topic(world, partitions=2)
    for index in (0, 1):
        fill(world, "orders", bytes(200), bytes(200), index=index)
    answer = fetch(world, ("orders", 0, 0), ("orders", 1, 0), max_bytes=1, max_bytes_each=1)
    assert [len(values_in(part)) for part in answer.responses[0].partitions] == [1, 0]


def test_max_bytes_of_a_partition_and_of_the_answer_are_kept(world: World) -> None:
    create_topic(world, partitions=2)
    size = len(batch_of(world, bytes(100)))
    for index in (0, 1):
        fill(world, "orders", *[bytes(100)] * 5, index=index)
    answer = fetch(world, ("orders", 0, 0), ("orders", 1, 0), max_bytes_each=2 * size + 1)
    assert [len(values_in(part)) for part in answer.responses[0].partitions] == [2, 2]
    answer = fetch(world, ("orders", 0, 0), ("orders", 1, 0), max_bytes=6 * size)
    assert [len(values_in(part)) for part in answer.responses[0].partitions] == [5, 1]


def test_max_bytes_are_kept_when_several_places_are_cold(world: World) -> None:
    """Seed 4: cold places were looked up as if each were the only one."""
    create_topic(world, partitions=3, segment_bytes="150")
    for index in range(3):
        fill(world, "orders", *[bytes(100)] * 3, index=index)
    world.stop()
    world.start()
    world.disk.platter.nothing_cached = True
    answer = fetch(world, *[("orders", index, 0) for index in range(3)], max_bytes=1)
    assert [len(values_in(part)) for part in answer.responses[0].partitions] == [1, 0, 0]


# When


def test_a_fetch_that_finds_enough_is_answered_at_once(world: World) -> None:
    create_topic(world)
    fill(world, "orders", b"a")
    assert begin_fetch(world, ("orders", 0, 0), max_wait_ms=1000).answered


def test_a_fetch_waits_for_min_bytes_over_all_its_partitions(world: World) -> None:
    create_topic(world, partitions=2)
    size = len(batch_of(world, bytes(100)))
    exchange = begin_fetch(world, ("orders", 0, 0), ("orders", 1, 0), min_bytes=2 * size, max_wait_ms=60_000)
    fill(world, "orders", bytes(100), index=0)
    world.advance(30_000)
    assert not exchange.answered
    fill(world, "orders", bytes(100), index=1)
    assert exchange.answered
    assert [len(values_in(part)) for part in exchange.answer.responses[0].partitions] == [1, 1]


def test_a_fetch_that_can_take_no_more_waits_for_no_more(world: World) -> None:
    create_topic(world)
    fill(world, "orders", bytes(100), bytes(100))
    size = len(batch_of(world, bytes(100)))
    assert begin_fetch(world, ("orders", 0, 0), min_bytes=10_000, max_bytes=size, max_wait_ms=60_000).answered
    assert not begin_fetch(world, ("orders", 0, 2), min_bytes=10_000, max_bytes=size, max_wait_ms=60_000).answered


def test_a_fetch_is_answered_with_what_there_is_when_its_time_is_up(world: World) -> None:
    create_topic(world)
    fill(world, "orders", b"a")
    exchange = begin_fetch(world, ("orders", 0, 0), min_bytes=10_000, max_wait_ms=500)
    world.advance(499)
    assert not exchange.answered
    world.advance(1)
    assert values_in(only(exchange.answer)) == [b"a"]


def test_a_request_behind_a_fetch_that_waits_does_not_wait_with_it(world: World) -> None:
    create_topic(world)
    other = begin_fetch(world, ("orders", 0, 0), max_wait_ms=500)
    waiting = begin_fetch(world, ("orders", 0, 0), max_wait_ms=500)
    ahead = waiting.connection.request(ApiKey.FETCH, 12, fetch_values(("orders", 0, 0), max_wait_ms=500))
    world.settle()
    assert not waiting.answered
    asked = waiting.connection.request(ApiKey.METADATA, 1, {"topics": None})
    world.settle()
    assert waiting.answered
    assert ahead.answered
    assert asked.answered
    assert values_in(only(waiting.answer)) == []
    assert not other.answered


def test_a_client_that_follows_each_empty_fetch_with_another_request_does_not_poll_in_a_circle(world: World) -> None:
    create_topic(world)
    connection = world.connect()
    waiting = connection.request(ApiKey.FETCH, 12, fetch_values(("orders", 0, 0), max_wait_ms=500))
    fetches = 0
    for _ in range(2 * MOST_IN_WINDOW):
        asked = connection.request(ApiKey.METADATA, 1, {"topics": None})
        world.settle()
        if not waiting.answered:
            break
        fetches += 1
        waiting = connection.request(ApiKey.FETCH, 12, fetch_values(("orders", 0, 0), max_wait_ms=500))
        world.settle()
    assert fetches == MOST_IN_WINDOW
    world.advance(500)
    assert waiting.answered
    assert asked.answered
    world.advance(1000)
    waiting = connection.request(ApiKey.FETCH, 12, fetch_values(("orders", 0, 0), max_wait_ms=500))
    connection.request(ApiKey.METADATA, 1, {"topics": None})
    world.settle()
    assert waiting.answered


def test_a_fetch_without_a_wait_is_answered_empty(world: World) -> None:
    create_topic(world)
    part = only(fetch(world, ("orders", 0, 0), max_wait_ms=0))
    assert (part.error_code, part.high_watermark, values_in(part)) == (0, 0, [])


def test_a_fetch_of_nothing_is_answered_at_once(world: World) -> None:
    assert fetch(world, max_wait_ms=10_000).responses == []


def test_what_is_not_durable_is_not_read_and_wakes_nobody(world: World) -> None:
    create_topic(world)
    exchange = begin_fetch(world, ("orders", 0, 0), max_wait_ms=60_000)
    world.connect().request(ApiKey.PRODUCE, 9, produce_values("orders", batch_of(world)))
    while steps := [do for name, do in world.steps() if not name.startswith(("sync", "flush"))]:
        world.do(steps[0])
    assert world.node.hosted.leader("orders", 0).replica.log.offsets.end == 1
    assert exchange.state is State.WAITING
    world.settle()
    assert exchange.answered


def test_a_closed_connection_takes_its_waiting_fetch_along(world: World) -> None:
    create_topic(world)
    exchange = begin_fetch(world, ("orders", 0, 0), max_wait_ms=60_000)
    assert world.node.hosted.leader("orders", 0).waits.readers
    exchange.connection.close()
    world.settle()
    assert not world.node.hosted.leader("orders", 0).waits.readers
    fill(world, "orders", b"a")
    world.advance(60_000)
    assert exchange.replies == 0


def test_deadlines_keep_their_distance_when_the_clock_is_set(world: World) -> None:
    create_topic(world)
    before = begin_fetch(world, ("orders", 0, 0), max_wait_ms=1000)
    world.clock.jump(3_600_000)
    after = begin_fetch(world, ("orders", 0, 0), max_wait_ms=1500)
    world.advance(999)
    assert not before.answered
    world.clock.jump(-7_200_000)
    world.advance(1)
    assert before.answered
    world.advance(499)
    assert not after.answered
    world.advance(1)
    assert after.answered


# What goes away meanwhile


def test_a_deleted_topic_answers_who_waits_for_it(world: World) -> None:
    topic = create_topic(world)
    by_name = begin_fetch(world, ("orders", 0, 0), max_wait_ms=60_000)
    by_id = begin_fetch(world, (topic, 0, 0), version=13, max_wait_ms=60_000)
    delete_topic(world, "orders")
    assert error(only(by_name.answer).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error(only(by_id.answer).error_code) == "UNKNOWN_TOPIC_ID"


def test_a_fetch_that_waits_for_a_cold_place_does_not_answer_with_a_topic_that_is_gone(world: World) -> None:
    """Seed 29: what was found in a topic was sent although the topic was deleted while another place was read."""
    create_topic(world, "gone")
    create_topic(world, segment_bytes="150")
    fill(world, "orders", *[bytes(100)] * 3)
    world.stop()
    world.start()
    fill(world, "gone", b"a")
    world.disk.platter.nothing_cached = True
    exchange = world.connect().request(ApiKey.FETCH, 12, fetch_values(("gone", 0, 0), ("orders", 0, 0)))
    world.do(dict(world.steps())["request"])
    (job,) = work_under_way(world)
    deletion = world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["gone"], "timeout_ms": 1000})
    settle_without(world, job)
    assert deletion.answered
    assert exchange.state is State.WAITING
    world.settle()
    answered = {topic.topic: topic.partitions[0] for topic in exchange.answer.responses}
    assert error(answered["gone"].error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert values_in(answered["orders"])


def work_under_way(world: World) -> list[Job]:
    assert world.life is not None
    return list(world.life.workers.jobs)


def settle_without(world: World, job: Job) -> None:
    """Everything happens but this piece of work, which a thread is slow to finish."""
    assert world.life is not None
    jobs = world.life.workers.jobs
    jobs.remove(job)
    world.settle()
    jobs.append(job)


def test_a_partition_that_moves_during_a_cold_read_is_looked_at_again(world: World) -> None:
    create_topic(world)
    fill(world, "orders", bytes(100))
    world.stop()
    world.start()
    world.disk.platter.nothing_cached = True
    exchange = world.connect().request(
        ApiKey.FETCH, 12, fetch_values(("orders", 0, 0), min_bytes=300, max_wait_ms=60_000)
    )
    world.do(dict(world.steps())["request"])
    (job,) = work_under_way(world)
    sent = world.connect().request(ApiKey.PRODUCE, 9, produce_values("orders", batch_of(world, bytes(300))))
    settle_without(world, job)
    assert sent.answered
    assert exchange.state is State.WAITING
    world.settle()
    assert len(values_in(only(exchange.answer))) == 2


def test_records_deleted_under_a_waiting_fetch_are_out_of_range(world: World) -> None:
    """Seed 56: it answered later with a slice of the file that had been removed."""
    create_topic(world, segment_bytes="150", file_delete_delay_ms="0")
    fill(world, "orders", *[bytes(100)] * 3)
    exchange = begin_fetch(world, ("orders", 0, 0), min_bytes=10_000, max_wait_ms=60_000)
    entry = {"name": "orders", "partitions": [{"partition_index": 0, "offset": 3}]}
    world.ask(ApiKey.DELETE_RECORDS, 2, topics=[entry], timeout_ms=1000)
    assert error(only(exchange.answer).error_code) == "OFFSET_OUT_OF_RANGE"


def test_retention_under_a_waiting_fetch_makes_it_out_of_range(world: World) -> None:
    create_topic(world, segment_bytes="150", file_delete_delay_ms="0", retention_bytes="200")
    fill(world, "orders", *[bytes(100)] * 4)
    exchange = begin_fetch(world, ("orders", 0, 0), min_bytes=10_000, max_wait_ms=3_600_000)
    world.advance(600_000)
    assert error(only(exchange.answer).error_code) == "OFFSET_OUT_OF_RANGE"


# Refusals


def test_unknown_partitions_and_topic_ids_are_told_beside_what_is_found(world: World) -> None:
    topic = create_topic(world)
    fill(world, "orders", b"a")
    answer = fetch(world, ("orders", 0, 0), ("orders", 7, 0), ("nowhere", 0, 0))
    parts = [part for topic in answer.responses for part in topic.partitions]
    expected = ["NONE", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert [error(part.error_code) for part in parts] == expected
    assert values_in(parts[0]) == [b"a"]
    nobody = {"topic_id": TopicId(int=5), "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}
    values = fetch_values((topic, 0, 0))
    answer = world.ask(ApiKey.FETCH, 13, **values | {"topics": [*values["topics"], nobody]})
    assert error(answer.responses[1].partitions[0].error_code) == "UNKNOWN_TOPIC_ID"


@pytest.mark.parametrize("offset", [-1, 2, 100])
def test_offsets_that_the_log_does_not_have_are_out_of_range_at_once(world: World, offset: int) -> None:
    create_topic(world)
    fill(world, "orders", b"a")
    part = only(fetch(world, ("orders", 0, offset), max_wait_ms=60_000))
    assert error(part.error_code) == "OFFSET_OUT_OF_RANGE"
    assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (-1, -1, -1)


def test_a_request_of_another_leader_epoch_is_refused_both_ways(world: World) -> None:
    create_topic(world)
    world.stop()
    world.start()
    epoch = world.node.hosted.leader("orders", 0).role.leader_epoch
    assert epoch > 0
    for asked, expected in ((epoch, "NONE"), (epoch - 1, "FENCED_LEADER_EPOCH"), (epoch + 1, "UNKNOWN_LEADER_EPOCH")):
        assert error(only(fetch(world, ("orders", 0, 0), current_leader_epoch=asked)).error_code) == expected


def test_a_reader_whose_log_went_another_way_is_told_where(world: World) -> None:
    create_topic(world)
    first_epoch = world.node.hosted.leader("orders", 0).role.leader_epoch
    fill(world, "orders", b"a", b"b")
    world.stop()
    world.start()
    fill(world, "orders", b"c")
    part = only(fetch(world, ("orders", 0, 3), last_fetched_epoch=first_epoch, max_wait_ms=60_000))
    assert (part.error_code, values_in(part)) == (0, [])
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (first_epoch, 2)
    part = only(fetch(world, ("orders", 0, 2), last_fetched_epoch=first_epoch))
    assert values_in(part) == [b"c"]


def test_a_broker_that_is_not_registered_is_no_follower(world: World) -> None:
    create_topic(world)
    answer = world.ask(ApiKey.FETCH, 12, **fetch_values(("orders", 0, 0)) | {"replica_id": 2})
    assert error(answer.error_code) == "STALE_BROKER_EPOCH"


def test_a_disk_that_cannot_be_read_is_a_storage_error(world: World) -> None:
    create_topic(world, segment_bytes="150")
    fill(world, "orders", *[bytes(100)] * 3)
    world.stop()
    world.start()
    world.disk.platter.nothing_cached = True
    world.disk.unreadable = True
    assert error(only(fetch(world, ("orders", 0, 0), max_wait_ms=60_000)).error_code) == "KAFKA_STORAGE_ERROR"


# Sessions


def test_an_incremental_answer_has_only_partitions_with_news(world: World) -> None:
    create_topic(world, partitions=3)
    fill(world, "orders", b"a", index=0)
    asked = [("orders", index, 0) for index in range(3)]
    opened = fetch(world, *asked, session_id=0, session_epoch=0)
    assert opened.session_id > 0
    assert len(opened.responses[0].partitions) == 3

    def again(epoch: int, *changed: tuple[str, int, int]) -> list[tuple[int, list[bytes | None]]]:
        answer = fetch(world, *changed, session_id=opened.session_id, session_epoch=epoch)
        assert answer.error_code == 0
        return [(part.partition_index, values_in(part)) for topic in answer.responses for part in topic.partitions]

    assert again(1, ("orders", 0, 1)) == []
    fill(world, "orders", b"b", index=2)
    assert again(2) == [(2, [b"b"])]
    assert again(3, ("orders", 2, 1)) == []
    delete_topic(world, "orders")
    assert sorted(index for index, _ in again(4)) == [0, 1, 2]


def test_a_moved_log_start_is_news(world: World) -> None:
    create_topic(world)
    fill(world, "orders", b"a", b"b")
    opened = fetch(world, ("orders", 0, 2), session_id=0, session_epoch=0)
    entry = {"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}
    world.ask(ApiKey.DELETE_RECORDS, 2, topics=[entry], timeout_ms=1000)
    part = only(fetch(world, session_id=opened.session_id, session_epoch=1))
    assert part.log_start_offset == 1


def test_sessions_are_refused_by_number_and_by_epoch(world: World) -> None:
    create_topic(world)
    opened = fetch(world, ("orders", 0, 0), session_id=0, session_epoch=0)
    for session_id, epoch, expected in (
        (opened.session_id + 1, 1, "FETCH_SESSION_ID_NOT_FOUND"),
        (opened.session_id, 5, "INVALID_FETCH_SESSION_EPOCH"),
        (opened.session_id, 1, "NONE"),
    ):
        answer = fetch(world, session_id=session_id, session_epoch=epoch)
        assert error(answer.error_code) == expected


def test_forgotten_partitions_leave_the_session(world: World) -> None:
    create_topic(world, partitions=2)
    opened = fetch(world, ("orders", 0, 0), ("orders", 1, 0), session_id=0, session_epoch=0)
    forgotten = [{"topic": "orders", "partitions": [0]}]
    fetch(world, session_id=opened.session_id, session_epoch=1, forgotten_topics_data=forgotten)
    for index in (0, 1):
        fill(world, "orders", b"a", index=index)
    assert only(fetch(world, session_id=opened.session_id, session_epoch=2)).partition_index == 1

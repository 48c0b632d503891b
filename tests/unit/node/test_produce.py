"""Produce: what is refused and why, for each partition by itself; and when an acknowledgement is given."""

from collections.abc import Sequence
from typing import Any

import pytest
from simulation.world.exchange import Exchange, State
from simulation.world.world import World
from tests.unit.node.speaking import alter_topic, batch_of, create_topic, delete_topic, error, produce, produce_values

from cordwood.model.identifiers import TopicId
from cordwood.records.batch import CRC_POSITION, Codec
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

ALL_VERSIONS = range(3, 14)
HOUR_MS = 3_600_000


def errors(answers: Sequence[Any]) -> list[str]:
    return [error(answer.error_code) for answer in answers]


@pytest.mark.parametrize("version", ALL_VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_is_acknowledged_with_its_offset_in_every_version(world: World, version: int, acks: int) -> None:
    topic = create_topic(world)
    for expected in (0, 2):
        (answer,) = produce(
            world, topic if version >= 13 else "orders", batch_of(world, b"a", b"b"), version=version, acks=acks
        )
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, expected, -1)


def test_each_partition_is_refused_for_its_own_reason_and_the_others_are_taken(world: World) -> None:
    create_topic(world, partitions=2)
    good = batch_of(world)
    damaged = bytearray(good)
    damaged[CRC_POSITION] ^= 0xFF
    answers = produce(world, "orders", good, bytes(damaged), good)
    assert errors(answers) == ["NONE", "CORRUPT_MESSAGE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert [answer.base_offset for answer in answers] == [0, -1, -1]


def test_an_unknown_topic_is_told_by_name_and_by_id(world: World) -> None:
    assert errors(produce(world, "nowhere", batch_of(world))) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    topic = create_topic(world)
    delete_topic(world, "orders")
    assert errors(produce(world, topic, batch_of(world), version=13)) == ["UNKNOWN_TOPIC_ID"]
    assert topic.topic_id != TopicId(int=0)


def test_a_batch_larger_than_the_topic_allows_is_too_large(world: World) -> None:
    create_topic(world, max_message_bytes="100")
    (answer,) = produce(world, "orders", batch_of(world, bytes(100)))
    assert error(answer.error_code) == "MESSAGE_TOO_LARGE"
    assert "max.message.bytes is 100" in answer.error_message


@pytest.mark.parametrize("records", [None, b"", b"\x00" * 30])
def test_what_is_no_batch_is_an_invalid_record(world: World, records: bytes | None) -> None:
    create_topic(world)
    assert errors(produce(world, "orders", records)) == ["INVALID_RECORD"]


def test_two_batches_for_one_partition_are_refused(world: World) -> None:
    create_topic(world)
    assert errors(produce(world, "orders", batch_of(world) + batch_of(world))) == ["INVALID_RECORD"]


def test_control_batches_are_for_brokers_only(world: World) -> None:
    create_topic(world)
    assert errors(produce(world, "orders", batch_of(world, control=True))) == ["INVALID_RECORD"]


def test_internal_topics_are_written_by_brokers_only(world: World) -> None:
    world.ask(ApiKey.FIND_COORDINATOR, 0, key="group")
    assert errors(produce(world, "__consumer_offsets", batch_of(world))) == ["INVALID_TOPIC_EXCEPTION"]


def test_acks_other_than_0_1_and_all_are_refused_for_every_partition(world: World) -> None:
    create_topic(world, partitions=2)
    answers = produce(world, "orders", batch_of(world), batch_of(world), acks=2)
    assert errors(answers) == ["INVALID_REQUIRED_ACKS"] * 2
    assert "not 2" in answers[0].error_message


def test_a_batch_of_a_transaction_needs_a_transactional_id_that_the_coordinator_knows(world: World) -> None:
    create_topic(world)
    batch = batch_of(world, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    assert errors(produce(world, "orders", batch)) == ["INVALID_TXN_STATE"]
    values = produce_values("orders", batch) | {"transactional_id": "payments"}
    # A broker without a coordinator in its image may lag behind.
    for expected in ("NOT_ENOUGH_REPLICAS", "INVALID_PRODUCER_ID_MAPPING"):
        answer = world.ask(ApiKey.PRODUCE, 9, **values)
        assert errors(answer.responses[0].partition_responses) == [expected]
        world.ask(ApiKey.FIND_COORDINATOR, 2, key="payments", key_type=1)


@pytest.mark.parametrize(("version", "expected"), [(6, "UNSUPPORTED_COMPRESSION_TYPE"), (7, "NONE")])
def test_zstd_needs_version_7(world: World, version: int, expected: str) -> None:
    create_topic(world)
    assert errors(produce(world, "orders", batch_of(world, codec=Codec.ZSTD), version=version)) == [expected]


def test_a_record_without_a_key_on_a_compacted_topic_is_named(world: World) -> None:
    create_topic(world, cleanup_policy="compact")
    now_ms = world.clock.wall_ms
    records = [(now_ms, b"key", b"a", ()), (now_ms, None, b"b", ())]
    (answer,) = produce(world, "orders", bytes(build_batch(records)))
    assert error(answer.error_code) == "INVALID_RECORD"
    assert [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors] == [
        (1, "Compacted topics need a key.")
    ]


def test_a_timestamp_too_far_ahead_is_refused_and_the_record_named(world: World) -> None:
    create_topic(world)
    (answer,) = produce(world, "orders", bytes(build_batch([(world.clock.wall_ms + 2 * HOUR_MS, b"k", b"v", ())])))
    assert error(answer.error_code) == "INVALID_TIMESTAMP"
    assert [each.batch_index for each in answer.record_errors] == [0]


def test_log_append_time_is_told(world: World) -> None:
    create_topic(world, message_timestamp_type="LogAppendTime")
    world.advance(1234)
    (answer,) = produce(world, "orders", batch_of(world))
    assert answer.log_append_time_ms == world.clock.wall_ms


def test_acks_0_has_no_answer(world: World) -> None:
    create_topic(world)
    exchange = world.begin(ApiKey.PRODUCE, 9, **produce_values("orders", batch_of(world), acks=0))
    assert exchange.state is State.NOTHING
    assert world.node.hosted.leader("orders", 0).replica.high_watermark == 1


def test_acks_0_refused_hangs_up_and_what_was_good_stays(world: World) -> None:
    create_topic(world)
    exchange = world.begin(ApiKey.PRODUCE, 9, **produce_values("orders", batch_of(world), batch_of(world), acks=0))
    assert exchange.state is State.HUNG_UP
    assert world.node.hosted.leader("orders", 0).replica.high_watermark == 1


# When an acknowledgement is given


def waiting_produce(world: World, acks: int, timeout_ms: int = 1000) -> Exchange:
    """A produce that the node has and the disk has not."""
    exchange = world.connect().request(
        ApiKey.PRODUCE, 9, produce_values("orders", batch_of(world), acks=acks, timeout_ms=timeout_ms)
    )
    while exchange.state is State.TRAVELLING:
        world.do(dict(world.steps())["request"])
    return exchange


def do_all_but_syncs(world: World) -> None:
    while steps := [do for name, do in world.steps() if not name.startswith(("sync", "flush"))]:
        world.do(steps[0])


@pytest.mark.parametrize("acks", [1, -1])
def test_under_disk_an_acknowledgement_waits_for_the_sync(world: World, acks: int) -> None:
    create_topic(world)
    exchange = waiting_produce(world, acks)
    do_all_but_syncs(world)
    assert exchange.state is State.WAITING
    replica = world.node.hosted.leader("orders", 0).replica
    assert (replica.log.offsets.end, replica.high_watermark) == (1, 0)
    world.settle()
    assert exchange.answered
    assert replica.high_watermark == 1


@pytest.mark.parametrize("acks", [1, -1])
def test_under_os_an_acknowledgement_waits_for_nothing(world: World, acks: int) -> None:
    create_topic(world, ack_durability="os")
    exchange = waiting_produce(world, acks)
    do_all_but_syncs(world)
    assert exchange.answered
    assert world.node.hosted.leader("orders", 0).replica.high_watermark == 1
    assert world.node.hosted.leader("orders", 0).replica.log.offsets.durable_end == 0


def test_under_os_flush_messages_makes_every_nth_acknowledgement_wait(world: World) -> None:
    create_topic(world, ack_durability="os", flush_messages="2")
    first, second = waiting_produce(world, 1), waiting_produce(world, 1)
    do_all_but_syncs(world)
    assert (first.answered, second.answered) == (True, False)
    world.settle()
    assert second.answered
    assert world.node.hosted.leader("orders", 0).replica.log.offsets.durable_end == 2


def test_what_came_during_a_flush_counts_for_the_next_one(world: World) -> None:
    create_topic(world, ack_durability="os", flush_messages="3")
    for _ in range(3):
        waiting_produce(world, 1)
    do_all_but_syncs(world)
    waiting_produce(world, 1)
    waiting_produce(world, 1)
    world.settle()
    log = world.node.hosted.leader("orders", 0).replica.log
    assert (log.offsets.end, log.offsets.durable_end) == (5, 5)
    waiting_produce(world, 1)
    waiting_produce(world, 1)
    batch = batch_of(world, producer_id=7, producer_epoch=0, base_sequence=0)
    produce(world, "orders", batch, acks=1)
    assert log.offsets.durable_end == 8
    produce(world, "orders", batch, acks=1)
    produce(world, "orders", batch, acks=1)
    produce(world, "orders", batch_of(world), acks=1)
    world.settle()
    assert (log.offsets.end, log.offsets.durable_end) == (9, 8)


def test_under_os_flush_ms_syncs_by_the_clock(world: World) -> None:
    create_topic(world, ack_durability="os", flush_ms="200")
    produce(world, "orders", batch_of(world))
    log = world.node.hosted.leader("orders", 0).replica.log
    world.advance(199)
    assert log.offsets.durable_end == 0
    world.advance(1)
    assert log.offsets.durable_end == 1


@pytest.mark.parametrize("acks", [1, -1])
def test_an_acknowledgement_that_waits_too_long_is_a_timeout_and_the_record_stays(world: World, acks: int) -> None:
    create_topic(world)
    exchange = waiting_produce(world, acks, timeout_ms=300)
    do_all_but_syncs(world)
    world.clock.advance(299)
    do_all_but_syncs(world)
    assert exchange.state is State.WAITING
    world.clock.advance(501)
    do_all_but_syncs(world)
    assert errors(exchange.answer.responses[0].partition_responses) == ["REQUEST_TIMED_OUT"]
    world.settle()
    assert world.node.hosted.leader("orders", 0).replica.high_watermark == 1


def test_a_deleted_topic_answers_who_waited_for_it(world: World) -> None:
    create_topic(world)
    exchange = waiting_produce(world, -1)
    deletion = world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["orders"], "timeout_ms": 1000})
    do_all_but_syncs(world)
    assert deletion.answered
    assert errors(exchange.answer.responses[0].partition_responses) == ["UNKNOWN_TOPIC_OR_PARTITION"]


def test_acks_all_is_refused_while_too_few_replicas_are_in_sync_and_acks_1_is_not_visible_before(world: World) -> None:
    create_topic(world, min_insync_replicas="2")
    assert errors(produce(world, "orders", batch_of(world))) == ["NOT_ENOUGH_REPLICAS"]
    assert errors(produce(world, "orders", batch_of(world), acks=1)) == ["NONE"]
    replica = world.node.hosted.leader("orders", 0).replica
    assert (replica.log.offsets.durable_end, replica.high_watermark) == (1, 0)
    alter_topic(world, "orders", min_insync_replicas="1")
    assert replica.high_watermark == 1


def test_a_full_disk_is_a_storage_error_with_the_reason_and_nothing_is_appended(world: World) -> None:
    create_topic(world)
    produce(world, "orders", batch_of(world))
    world.disk.platter.free_for_appends = 10
    (answer,) = produce(world, "orders", batch_of(world))
    assert error(answer.error_code) == "KAFKA_STORAGE_ERROR"
    assert "no space left" in answer.error_message
    world.disk.platter.free_for_appends = None
    assert produce(world, "orders", batch_of(world))[0].base_offset == 1


# Idempotence


def test_a_repeated_batch_is_answered_with_its_first_offset_once_that_is_durable(world: World) -> None:
    create_topic(world)
    batch = batch_of(world, b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    values = produce_values("orders", batch)
    first, again = (world.connect().request(ApiKey.PRODUCE, 9, values) for _ in range(2))
    do_all_but_syncs(world)
    assert (first.state, again.state) == (State.WAITING, State.WAITING)
    world.settle()
    offsets = [each.answer.responses[0].partition_responses[0].base_offset for each in (first, again)]
    assert offsets == [0, 0]
    assert world.node.hosted.leader("orders", 0).replica.log.offsets.end == 2


def test_a_gap_in_the_sequence_and_an_old_epoch_are_refused(world: World) -> None:
    create_topic(world)
    for sequence, epoch, expected in (
        (0, 1, "NONE"),
        (2, 1, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        (1, 0, "INVALID_PRODUCER_EPOCH"),
        (1, 1, "NONE"),
    ):
        batch = batch_of(world, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        assert errors(produce(world, "orders", batch)) == [expected]


def test_a_batch_behind_one_that_found_no_space_is_told_of_the_full_disk_not_of_a_gap(world: World) -> None:
    create_topic(world)
    batches = [batch_of(world, producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in range(4)]
    assert errors(produce(world, "orders", batches[0])) == ["NONE"]
    world.machine.disk.platter.free_for_appends = 0
    assert errors(produce(world, "orders", batches[1])) == ["KAFKA_STORAGE_ERROR"]
    world.machine.disk.platter.free_for_appends = None
    assert errors(produce(world, "orders", batches[2])) == ["KAFKA_STORAGE_ERROR"]
    assert [errors(produce(world, "orders", batch)) for batch in batches[1:3]] == [["NONE"], ["NONE"]]
    skipping = batch_of(world, producer_id=7, producer_epoch=0, base_sequence=9)
    assert errors(produce(world, "orders", skipping)) == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]


@pytest.mark.parametrize("ending", ["stop", "kill", "lose_power"])
def test_duplicates_are_known_after_a_restart(world: World, ending: str) -> None:
    create_topic(world)
    batches = [batch_of(world, producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in range(6)]
    for batch in batches:
        produce(world, "orders", batch)
    getattr(world, ending)()
    world.start()
    assert [produce(world, "orders", batch)[0].base_offset for batch in batches[1:]] == [1, 2, 3, 4, 5]
    assert world.node.hosted.leader("orders", 0).replica.log.offsets.end == 6

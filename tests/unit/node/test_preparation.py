"""Batches that need work before they are appended: they get their topic's codec, or their records are looked at."""

from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

import pytest
from simulation.world.exchange import Exchange
from simulation.world.world import World
from tests.unit.node.speaking import (
    alter_topic,
    batch_of,
    create_topic,
    error,
    fetch,
    only,
    produce,
    produce_values,
    values_in,
)

from cordwood.model.errors import StorageFailure
from cordwood.node.handlers.records.produce import BATCHES_PER_STEP
from cordwood.node.partitions.preparation import BYTES_IN_LOOP, HEADERS_IN_LOOP, RECORDS_IN_LOOP
from cordwood.records import validate
from cordwood.records.batch import Buffer, Codec, read_header
from cordwood.records.build import build_batch
from cordwood.records.record_rules import Look, RecordRules, look
from cordwood.wire.apis import ApiKey

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def codecs_in(world: World, topic: str = "orders") -> list[int]:
    data = only(fetch(world, (topic, 0, 0))).records
    codecs = []
    while data:
        header = read_header(data)
        codecs.append(header.codec)
        data = data[header.size :]
    return codecs


@pytest.mark.parametrize("name", CODECS)
def test_every_batch_has_the_topics_codec_whatever_the_producer_used(world: World, name: str) -> None:
    create_topic(world, compression_type=name)
    for codec in Codec:
        (answer,) = produce(world, "orders", batch_of(world, b"%d" % codec * 100, codec=codec))
        assert (answer.error_code, answer.base_offset) == (0, codec)
    assert codecs_in(world) == [CODECS[name]] * 5
    assert values_in(only(fetch(world, ("orders", 0, 0)))) == [b"%d" % codec * 100 for codec in Codec]


def test_by_default_and_after_the_setting_is_taken_back_the_producers_codec_stays(world: World) -> None:
    create_topic(world)
    produce(world, "orders", batch_of(world, codec=Codec.GZIP))
    alter_topic(world, "orders", compression_type="lz4")
    produce(world, "orders", batch_of(world, codec=Codec.GZIP))
    alter_topic(world, "orders", compression_type="producer")
    produce(world, "orders", batch_of(world, codec=Codec.GZIP))
    assert codecs_in(world) == [Codec.GZIP, Codec.LZ4, Codec.GZIP]
    assert not world.node.preparation.may_concern([("orders", None)])


def send_all(world: World, *batches: bytes) -> list[Exchange]:
    """All on one connection. They have arrived, in this order, and the threads have done nothing yet."""
    exchanges = []
    connection = world.connect()
    for batch in batches:
        exchanges.append(connection.request(ApiKey.PRODUCE, 9, produce_values("orders", batch)))
        while arriving := [step for name, step in world.steps() if name in ("request", "turn")]:
            world.do(arriving[0])
    return exchanges


def finish(world: World, *, newest_first: bool) -> None:
    """Lets threads, disk and network do what is left, in this order."""
    while steps := world.steps():
        world.do(steps[-1 if newest_first else 0][1])


def answers(exchanges: list[Exchange]) -> list[tuple[str, int]]:
    parts = [each.answer.responses[0].partition_responses[0] for each in exchanges]
    return [(error(part.error_code), part.base_offset) for part in parts]


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_batch_that_needs_no_work_does_not_pass_one_that_does(world: World, newest_first: bool) -> None:
    create_topic(world, compression_type="zstd")
    sent = send_all(
        world,
        batch_of(world, b"first"),
        batch_of(world, b"second", codec=Codec.ZSTD),
        batch_of(world, b"third", codec=Codec.GZIP),
    )
    assert not any(each.answered for each in sent)
    finish(world, newest_first=newest_first)
    assert answers(sent) == [("NONE", 0), ("NONE", 1), ("NONE", 2)]
    assert values_in(only(fetch(world, ("orders", 0, 0)))) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("newest_first", [False, True])
def test_idempotent_batches_keep_their_sequences_and_are_known_again(world: World, newest_first: bool) -> None:
    create_topic(world, compression_type="lz4")
    producer: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0}
    batches = [batch_of(world, b"%d" % number, base_sequence=number, **producer) for number in range(3)]
    sent = send_all(world, *batches, batches[1])
    finish(world, newest_first=newest_first)
    assert answers(sent) == [("NONE", 0), ("NONE", 1), ("NONE", 2), ("NONE", 1)]
    (late,) = produce(world, "orders", batch_of(world, b"9", base_sequence=9, **producer))
    assert error(late.error_code) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_what_is_wrong_with_a_batch_is_said_of_that_batch_alone(world: World) -> None:
    create_topic(world, partitions=4, compression_type="gzip", max_message_bytes="2000")
    damaged = bytearray(batch_of(world, b"damaged"))
    damaged[-1] ^= 1
    answers = produce(
        world, "orders", batch_of(world, b"good"), bytes(damaged), batch_of(world, bytes(3000)), None, version=9
    )
    assert [error(each.error_code) for each in answers] == [
        "NONE",
        "CORRUPT_MESSAGE",
        "MESSAGE_TOO_LARGE",
        "INVALID_RECORD",
    ]


def test_a_batch_that_would_outgrow_the_topic_is_refused(world: World) -> None:
    create_topic(world, compression_type="uncompressed", max_message_bytes="2000")
    (answer,) = produce(world, "orders", batch_of(world, bytes(3000), codec=Codec.ZSTD))
    assert error(answer.error_code) == "MESSAGE_TOO_LARGE"


def test_an_old_request_may_not_bring_zstd_but_its_topic_may_make_it(world: World) -> None:
    create_topic(world, compression_type="zstd")
    create_topic(world, "plain", compression_type="uncompressed")
    (made,) = produce(world, "orders", batch_of(world), version=3)
    (brought,) = produce(world, "plain", batch_of(world, codec=Codec.ZSTD), version=3)
    assert [error(each.error_code) for each in (made, brought)] == ["NONE", "UNSUPPORTED_COMPRESSION_TYPE"]
    assert codecs_in(world) == [Codec.ZSTD]


def test_a_topic_that_is_deleted_meanwhile_takes_nothing(world: World) -> None:
    create_topic(world, compression_type="zstd")
    sent = send_all(world, batch_of(world))
    partition = world.node.hosted.leader("orders", 0)
    kept = world.node.image.topics.pop("orders"), world.node.hosted.topics.pop("orders")
    finish(world, newest_first=False)
    world.node.image.topics["orders"], world.node.hosted.topics["orders"] = kept
    assert answers(sent) == [("UNKNOWN_TOPIC_OR_PARTITION", -1)]
    assert not partition.replica.log.offsets.end


def test_memory_for_what_batches_become_is_bounded(world: World) -> None:
    """Twenty small requests, each of which may become half of what is allowed at a time."""
    limit = world.node.settings.socket_request_max_bytes
    create_topic(world, compression_type="uncompressed", max_message_bytes=str(limit))
    sent = send_all(world, *(batch_of(world, bytes(10_000), codec=Codec.ZSTD) for _ in range(20)))
    assert world.life is not None
    allowed = world.node.settings.queued_max_request_bytes // limit
    assert world.life.workers.under_way == allowed < 20
    finish(world, newest_first=True)
    assert answers(sent) == [("NONE", offset) for offset in range(20)]


# Records that are looked at

MANY = RECORDS_IN_LOOP + 1


class Elsewhere:
    """Does the work of another process here, and notes the records that it was given."""

    def __init__(self) -> None:
        self.records: list[int] = []

    def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        given: tuple[Any, ...] = arguments
        self.records += [read_header(task.batch).record_count for task in given[0]]
        return function(*arguments)


@pytest.fixture
def elsewhere(world: World) -> Elsewhere:
    elsewhere = Elsewhere()
    world.node.preparation._apart = elsewhere
    return elsewhere


@pytest.fixture
def opened_in_loop(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The record counts of batches that the log itself looks at."""
    opened: list[int] = []

    def noting(batch: Buffer, rules: RecordRules) -> Look:
        opened.append(read_header(batch).record_count)
        return look(batch, rules)

    monkeypatch.setattr(validate, "look", noting)
    return opened


def many(world: World, count: int = MANY, key: bytes | None = b"key", **options: Any) -> bytes:
    return batch_of(world, *[b"v"] * count, key=key, **options)


def test_few_records_are_looked_at_in_the_loop_and_more_in_another_process(
    world: World, elsewhere: Elsewhere, opened_in_loop: list[int]
) -> None:
    create_topic(world, cleanup_policy="compact")
    for codec in Codec:
        (few,) = produce(world, "orders", many(world, RECORDS_IN_LOOP, codec=codec))
        (more,) = produce(world, "orders", many(world, MANY, codec=codec))
        assert (few.error_code, more.error_code) == (0, 0)
    assert elsewhere.records == [MANY] * len(Codec)
    assert opened_in_loop == [], "what was looked at is not looked at again"
    assert world.node.hosted.leader("orders", 0).replica.log.offsets.end == len(Codec) * (RECORDS_IN_LOOP + MANY)


def test_the_records_of_a_whole_request_count(world: World, elsewhere: Elsewhere) -> None:
    create_topic(world, cleanup_policy="compact", partitions=3)
    half = RECORDS_IN_LOOP // 2
    assert [each.error_code for each in produce(world, "orders", many(world, half), many(world, half))] == [0, 0]
    assert elsewhere.records == []
    answers = produce(world, "orders", many(world, half), many(world, half), many(world, 1))
    assert [each.error_code for each in answers] == [0, 0, 0]
    assert elsewhere.records == [half, half, 1]


def test_few_records_that_are_large_once_uncompressed_go_to_another_process(world: World, elsewhere: Elsewhere) -> None:
    create_topic(world, cleanup_policy="compact")
    for codec in (Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD):
        (answer,) = produce(world, "orders", batch_of(world, bytes(BYTES_IN_LOOP), codec=codec))
        assert answer.error_code == 0
    assert elsewhere.records == [1] * 4


def test_many_headers_go_to_another_process(world: World, elsewhere: Elsewhere) -> None:
    create_topic(world, cleanup_policy="compact")
    headers = (("name", b""),) * (HEADERS_IN_LOOP + 1)
    (answer,) = produce(world, "orders", bytes(build_batch([(world.clock.wall_ms, b"key", None, headers)])))
    assert answer.error_code == 0
    assert elsewhere.records == [1]


def test_what_is_found_elsewhere_is_told_as_if_it_was_found_here(world: World, elsewhere: Elsewhere) -> None:
    create_topic(world, cleanup_policy="compact", partitions=4, message_timestamp_before_max_ms="1000")
    old = build_batch([(world.clock.wall_ms - 5000, b"key", b"v", ())] * MANY)
    damaged = bytearray(many(world))
    damaged[-1] ^= 1
    answers = produce(world, "orders", many(world, key=None), bytes(old), bytes(damaged), many(world))
    assert [error(each.error_code) for each in answers] == [
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "CORRUPT_MESSAGE",
        "NONE",
    ]
    assert [len(each.record_errors) for each in answers] == [MANY, MANY, 0, 0]
    assert elsewhere.records == [MANY] * 4


def test_a_partition_that_is_named_twice_has_each_batch_looked_at(world: World, elsewhere: Elsewhere) -> None:
    create_topic(world, cleanup_policy="compact")
    values = produce_values("orders", many(world), many(world, key=None))
    values["topic_data"][0]["partition_data"][1]["index"] = 0
    answer = world.ask(ApiKey.PRODUCE, 9, **values)
    codes = [error(each.error_code) for each in answer.responses[0].partition_responses]
    assert codes[1] == "INVALID_RECORD"


@pytest.mark.parametrize("newest_first", [False, True])
def test_requests_of_a_connection_keep_their_order_and_others_are_not_held_up(
    world: World, elsewhere: Elsewhere, newest_first: bool
) -> None:
    create_topic(world, cleanup_policy="compact")
    first = send_all(world, many(world), batch_of(world, b"small"), many(world, MANY + 1))
    (other,) = send_all(world, batch_of(world, b"of another connection"))
    assert world.node.hosted.leader("orders", 0).replica.log.offsets.end == 1, "the other one's"
    finish(world, newest_first=newest_first)
    assert answers([other]) == [("NONE", 0)]
    assert answers(first) == [("NONE", 1), ("NONE", 1 + MANY), ("NONE", 2 + MANY)]


def test_a_process_that_fails_is_told_as_an_error_that_clients_retry(world: World) -> None:
    class Failing:
        def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
            raise StorageFailure("no process could be started")

    world.node.preparation._apart = Failing()
    create_topic(world, cleanup_policy="compact")
    (answer,) = produce(world, "orders", many(world))
    assert error(answer.error_code) == "KAFKA_STORAGE_ERROR"


def test_a_wide_request_is_prepared_in_pieces_and_its_batches_keep_their_order(
    world: World, elsewhere: Elsewhere, opened_in_loop: list[int]
) -> None:
    create_topic(world, cleanup_policy="compact")
    count, each = 2 * BATCHES_PER_STEP + 50, 10
    batches = [batch_of(world, *[b"%d" % number] * each) for number in range(count)]
    values = produce_values("orders", *batches)
    for entry in values["topic_data"][0]["partition_data"]:
        entry["index"] = 0
    answer = world.ask(ApiKey.PRODUCE, 9, **values)
    told = [part for topic in answer.responses for part in topic.partition_responses]
    assert [part.error_code for part in told] == [0] * count
    assert [part.base_offset for part in told] == [number * each for number in range(count)]
    assert elsewhere.records == [each] * count
    assert opened_in_loop == []

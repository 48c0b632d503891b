"""compression.type of a topic: batches get its codec outside of the loop, and nothing else about them changes."""

from typing import Any

import pytest
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

from cordwood.records.batch import Codec, read_header
from cordwood.simulation.exchange import Exchange
from cordwood.simulation.world import World
from cordwood.wire.apis import ApiKey

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
    assert world.node.recompression.idle


def send_all(world: World, *batches: bytes) -> list[Exchange]:
    """Each on a connection of its own. They have arrived, in this order, and the threads have done nothing yet."""
    exchanges = []
    for batch in batches:
        exchanges.append(world.connect().request(ApiKey.PRODUCE, 9, produce_values("orders", batch)))
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
    partition = world.node.partition("orders", 0)
    world.node.topics["orders"] = []
    finish(world, newest_first=False)
    world.node.topics["orders"] = [partition]
    assert answers(sent) == [("UNKNOWN_TOPIC_OR_PARTITION", -1)]
    assert not partition.replica.log.log_end_offset


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

"""A batch with another codec: the same records, the same header but for codec, length and CRC."""

from typing import Any

import pytest

from cordwood.model.errors import ErrorCode
from cordwood.model.settings.topic_settings import TopicSettings, resolve
from cordwood.records.batch import CRC_POSITION, CRC_START, Codec, crc_is_right, read_header
from cordwood.records.build import build_batch
from cordwood.records.checksum import crc32c
from cordwood.records.recompression import codec_of, level_of, needs_recompression, recompress
from cordwood.records.records import records_in
from cordwood.records.validate import InvalidBatch, check_client_batch

NOW_MS = 1_700_000_000_000
PLENTY = 1 << 20
RECORDS = [(NOW_MS + number, b"key", b"value %d " % number * 20, (("h", b"1"),)) for number in range(50)]


def batch_with(codec: Codec, **options: Any) -> bytes:
    return bytes(build_batch(RECORDS, codec=codec, **options))


@pytest.mark.parametrize("after", list(Codec))
@pytest.mark.parametrize("before", list(Codec))
def test_any_codec_becomes_any_other_and_all_else_stays(before: Codec, after: Codec) -> None:
    batch = batch_with(before, producer_id=7, producer_epoch=3, base_sequence=11)
    assert needs_recompression(batch, after) == (before is not after)
    renewed = bytes(recompress(batch, after, None, PLENTY))
    old, new = read_header(batch), read_header(renewed)
    assert new.codec == after
    assert new.size == len(renewed)
    assert crc_is_right(renewed, 0, len(renewed))
    assert new._replace(batch_length=0, crc=0, attributes=0) == old._replace(batch_length=0, crc=0, attributes=0)
    assert list(records_in(renewed)) == list(records_in(batch))
    check_client_batch(renewed, TopicSettings(), NOW_MS)


def test_a_batch_that_the_log_refuses_comes_back_as_it_is() -> None:
    batch = bytearray(batch_with(Codec.LZ4))
    for damaged in (batch[:-1], batch[:70] + b"?" + batch[71:], batch[:22] + b"\x05" + batch[23:]):
        assert recompress(damaged, Codec.ZSTD, None, PLENTY) is damaged
    assert recompress(batch, Codec.ZSTD, None, len(batch) - 1) is batch


def test_records_that_cannot_be_opened_are_refused() -> None:
    garbage = bytearray(build_batch(RECORDS))
    garbage[22] |= Codec.GZIP
    garbage[CRC_POSITION:CRC_START] = crc32c(memoryview(garbage)[CRC_START:]).to_bytes(4, "big")
    with pytest.raises(InvalidBatch) as refusal:
        recompress(garbage, Codec.LZ4, None, PLENTY)
    assert refusal.value.code is ErrorCode.INVALID_RECORD


def test_a_batch_that_grows_beyond_its_limit_is_refused() -> None:
    batch = batch_with(Codec.ZSTD)
    with pytest.raises(InvalidBatch) as refusal:
        recompress(batch, Codec.NONE, None, len(batch) + 10)
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_topic_says_which_codec_and_how_hard_it_tries() -> None:
    assert codec_of(TopicSettings()) is None
    assert codec_of(resolve({"compression.type": "uncompressed"})) is Codec.NONE
    settings = resolve({"compression.gzip.level": "9", "compression.lz4.level": "12", "compression.zstd.level": "-5"})
    assert [level_of(settings, codec) for codec in Codec] == [None, 9, None, 12, -5]
    assert [level_of(TopicSettings(), codec) for codec in Codec] == [None, None, None, None, 3]
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        assert len(recompress(batch_with(Codec.NONE), codec, level_of(settings, codec), PLENTY)) < 1000

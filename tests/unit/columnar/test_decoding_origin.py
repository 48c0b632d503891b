"""Who wrote a record, as the header of its batch says."""

import pytest

from cordwood.columnar.columns import Origin
from cordwood.columnar.decoding import Decoder
from cordwood.records.batch import Codec
from cordwood.records.build import build_batch
from cordwood.records.control import TransactionMarker, build_transaction_marker

NOW_MS = 1_700_000_000_000


def batch(
    base_offset: int,
    count: int,
    codec: Codec = Codec.NONE,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    return build_batch(
        [(NOW_MS, b"key", b"value", ())] * count,
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def origins(data: bytes | bytearray, start_offset: int = 0) -> list[tuple[int, int, int, int, bool, bool]]:
    found = []
    for columns in Decoder(origin=True).decode(data, start_offset=start_offset, end_offset=1 << 60):
        origin = columns.origin
        assert isinstance(origin, Origin)
        columns_of = (columns.offset, origin.producer_id, origin.producer_epoch, origin.sequence)
        flags = (origin.transactional, origin.control)
        found += list(zip(*(column.to_pylist() for column in (*columns_of, *flags)), strict=True))
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_each_record_has_its_producer_and_its_own_sequence_number(codec: Codec) -> None:
    data = batch(10, 3, codec, producer_id=7, producer_epoch=2, base_sequence=40) + batch(13, 1, codec)
    assert origins(data) == [
        (10, 7, 2, 40, False, False),
        (11, 7, 2, 41, False, False),
        (12, 7, 2, 42, False, False),
        (13, -1, -1, -1, False, False),
    ]
    assert origins(data, start_offset=12) == origins(data)[2:]


def test_sequence_numbers_begin_again_after_the_largest() -> None:
    data = batch(0, 3, producer_id=7, producer_epoch=0, base_sequence=2**31 - 2)
    assert [row[3] for row in origins(data)] == [2**31 - 2, 2**31 - 1, 0]


def test_the_end_of_a_transaction_is_handed_out_as_a_control_record() -> None:
    data = batch(0, 1, producer_id=9, producer_epoch=1, base_sequence=0, transactional=True)
    marker = build_transaction_marker(TransactionMarker(True, 0), producer_id=9, producer_epoch=1, timestamp_ms=NOW_MS)
    marker[0:8] = (1).to_bytes(8, "big")
    data += marker
    assert origins(data) == [(0, 9, 1, 0, True, False), (1, 9, 1, -1, True, True)]
    (columns,) = Decoder().decode(data, start_offset=0, end_offset=10)
    assert columns.offset.to_pylist() == [0]
    assert columns.origin is None

"""Which records of transactions a reader gets, by the aborted transactions that the fetch's answer lists."""

import struct

import pytest
from crc32c import crc32c
from tests.unit.columnar.rows import decoded

from cordwood.records.batch import Codec
from cordwood.records.build import build_batch
from cordwood.records.control import LeaderChange, TransactionMarker, build_leader_change, build_transaction_marker
from cordwood.records.corruption import CorruptRecords

COMMIT, ABORT = TransactionMarker(True, 1), TransactionMarker(False, 1)


class Script:
    """A partition's log, built step by step; every step gives offsets as the log would."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.offset = 0

    def write(
        self, producer_id: int, count: int = 2, *, transactional: bool = True, codec: Codec = Codec.NONE
    ) -> "Script":
        self.data += build_batch(
            [(0, None, b"%d" % producer_id, ())] * count,
            base_offset=self.offset,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=transactional,
            codec=codec,
        )
        self.offset += count
        return self

    def end(self, producer_id: int, marker: TransactionMarker) -> "Script":
        self.data += build_transaction_marker(
            marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=0, base_offset=self.offset
        )
        self.offset += 1
        return self


def offsets(script: Script, aborted: list[tuple[int, int]] | None, start_offset: int = 0) -> list[int]:
    return [row.offset for row in decoded(script.data, aborted=aborted, start_offset=start_offset)]


def test_an_aborted_transaction_is_left_out_up_to_its_marker() -> None:
    script = Script().write(7).write(7).end(7, ABORT).write(7).end(7, COMMIT)
    assert offsets(script, [(7, 0)]) == [5, 6]


def test_uncommitted_readers_get_everything_but_markers() -> None:
    script = Script().write(7).end(7, ABORT).write(8).end(8, COMMIT).write(9)
    assert offsets(script, None) == [0, 1, 3, 4, 6, 7]


def test_producers_do_not_mix() -> None:
    script = Script().write(1).write(2).write(1).end(2, COMMIT).write(3, transactional=False).end(1, ABORT).write(2)
    assert offsets(script, [(1, 0)]) == [2, 3, 7, 8, 10, 11]


def test_a_producer_may_abort_again_and_commit_in_between() -> None:
    script = Script().write(1).end(1, ABORT).write(1).end(1, COMMIT).write(1).end(1, ABORT).write(1).end(1, COMMIT)
    assert offsets(script, [(1, 6), (1, 0)]) == [3, 4, 9, 10]


def test_what_a_producer_wrote_outside_of_transactions_stays() -> None:
    script = Script().write(1).write(1, transactional=False).end(1, ABORT)
    assert offsets(script, [(1, 0)]) == [2, 3]


@pytest.mark.parametrize("emptied", [1, 2])
def test_a_marker_that_compaction_has_emptied_is_passed_over(emptied: int) -> None:
    script = Script().write(1)
    script.data += build_batch(
        [],
        base_offset=script.offset,
        last_offset_delta=0,
        producer_id=emptied,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    script.offset += 1
    script.write(2).write(1).end(1, ABORT).write(1)
    assert offsets(script, [(1, 0)]) == [3, 4, 8, 9]


def test_a_transaction_that_began_before_the_answer_is_known_from_its_list() -> None:
    script = Script()
    script.offset = 100
    script.write(5).end(5, ABORT).write(5)
    assert offsets(script, [(5, 17)], start_offset=100) == [103, 104]


def test_a_transaction_without_its_marker_in_sight_is_left_out_to_the_end() -> None:
    script = Script().write(4).write(5).write(4)
    assert offsets(script, [(4, 0)]) == [2, 3]


def test_compressed_batches_are_left_out_as_well() -> None:
    script = Script().write(1, codec=Codec.ZSTD).write(2, codec=Codec.ZSTD).end(1, ABORT)
    assert offsets(script, [(1, 0)]) == [2, 3]


def test_many_aborted_transactions_at_once() -> None:
    script = Script()
    for producer_id in range(300):
        script.write(producer_id, 1)
    for producer_id in range(300):
        script.end(producer_id, ABORT if producer_id % 3 else COMMIT)
    for producer_id in range(300):
        script.write(producer_id, 1)
    aborted = [(producer_id, producer_id) for producer_id in range(299, -1, -1) if producer_id % 3]
    assert offsets(script, aborted) == [*range(0, 300, 3), *range(600, 900)]


def test_a_producer_that_is_listed_twice_is_inside_once() -> None:
    script = Script().write(1).end(1, ABORT).write(1)
    assert offsets(script, [(1, 0), (1, 0), (1, 1)]) == [3, 4]


def test_other_control_batches_end_nothing() -> None:
    script = Script().write(1)
    script.data += build_leader_change(LeaderChange(1, (1,), (1,)), timestamp_ms=0, base_offset=2)
    script.offset = 3
    script.write(1).end(1, ABORT)
    assert offsets(script, [(1, 0)]) == []


def test_a_marker_without_a_type_is_damage_to_those_who_need_it() -> None:
    marker = build_batch([(0, b"\x00", b"", ())], base_offset=2, producer_id=1, transactional=True, control=True)
    script = Script().write(1)
    script.data += marker
    assert offsets(script, None) == [0, 1]
    with pytest.raises(CorruptRecords, match="offset 2: a control batch has no type"):
        offsets(script, [(1, 0)])


@pytest.mark.parametrize("count", [1, 2000])
def test_checksums_are_checked_before_a_batch_is_left_out(count: int) -> None:
    script = Script().write(1, count)
    first_size = len(script.data)
    script.write(2, 1)
    script.data[22] ^= 0x20  # a control batch now, were it not for the checksum
    with pytest.raises(CorruptRecords, match=rf"offsets 0 to {count - 1}: the batch's checksum is wrong"):
        offsets(script, None)
    struct.pack_into(">I", script.data, 17, crc32c(memoryview(script.data)[21:first_size]))
    assert offsets(script, None) == [count]

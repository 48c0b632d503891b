"""The offsets that a data directory keeps, when the disk fails between two writes of them."""

from contextlib import suppress

import pytest

from cordwood.log.directory.offsets.kept_offsets import KeptOffsets
from cordwood.log.files.memory_filesystem import UNBOUNDED_BYTES, MemoryFilesystem
from cordwood.model.errors import DiskFull
from cordwood.model.identifiers import TopicPartition
from cordwood.segments.offset_checkpoint import HIGH_WATERMARK_FILE, WATERMARK_EPOCH_FILE

PATH = "/data"
ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("others", 0)


def read_again(filesystem: MemoryFilesystem) -> KeptOffsets:
    found = KeptOffsets(filesystem, PATH)
    assert found.read() == []
    return found


def test_a_cut_that_is_tried_again_after_a_full_disk_lowers_the_offsets_in_the_files() -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directory(PATH)
    kept = KeptOffsets(filesystem, PATH)
    kept.recovery_points[ORDERS] = kept.high_watermarks[ORDERS] = 18
    kept.begin_save()()
    filesystem.capacity_bytes = filesystem.used_bytes
    with pytest.raises(DiskFull):
        kept.begin_cut(ORDERS, recovery_point=11, end=16)()
    assert read_again(filesystem).recovery_points == {ORDERS: 18}
    filesystem.capacity_bytes = UNBOUNDED_BYTES
    kept.begin_cut(ORDERS, recovery_point=11, end=16)()
    found = read_again(filesystem)
    assert (found.recovery_points, found.high_watermarks) == ({ORDERS: 11}, {ORDERS: 16})


def test_a_high_watermark_is_kept_with_the_leader_epoch_in_which_it_was_known() -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directory(PATH)
    kept = KeptOffsets(filesystem, PATH)
    kept.high_watermarks[ORDERS], kept.watermark_epochs[ORDERS] = 18, 5
    kept.begin_save()()
    assert read_again(filesystem).watermark_epochs == {ORDERS: 5}
    kept.begin_cut(ORDERS, recovery_point=11, end=16)()
    found = read_again(filesystem)
    assert (found.high_watermarks, found.watermark_epochs) == ({ORDERS: 16}, {ORDERS: 5})
    kept.forget(ORDERS)
    kept.begin_save()()
    assert read_again(filesystem).watermark_epochs == {}


def test_the_epoch_of_a_high_watermark_that_an_earlier_release_wrote_is_unknown() -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directory(PATH)
    kept = KeptOffsets(filesystem, PATH)
    kept.high_watermarks[ORDERS], kept.watermark_epochs[ORDERS] = 18, 5
    kept.begin_save()()
    kept.high_watermarks[ORDERS] = 20
    kept.begin_save([HIGH_WATERMARK_FILE])()
    assert read_again(filesystem).watermark_epochs == {}


class Killed(Exception):
    """The process is killed."""


class KilledBetweenWrites(MemoryFilesystem):
    """Replaces so many more files."""

    writes_left = 1_000

    def replace(self, path: str, data: bytes) -> None:
        if not self.writes_left:
            raise Killed
        self.writes_left -= 1
        super().replace(path, data)


@pytest.mark.parametrize("writes", range(12))
@pytest.mark.parametrize("change", ["moves", "is cut", "is cut, and another one moves"])
def test_a_high_watermark_keeps_an_epoch_when_its_broker_is_killed_between_the_writes_of_its_files(
    writes: int, change: str
) -> None:
    """Without an epoch a follower would cut committed records without a recorded loss."""
    filesystem = KilledBetweenWrites()
    filesystem.make_directory(PATH)
    kept = KeptOffsets(filesystem, PATH)
    kept.high_watermarks.update({ORDERS: 18, OTHERS: 7})
    kept.watermark_epochs.update({ORDERS: 5, OTHERS: 5})
    kept.begin_save()()
    filesystem.writes_left = writes
    if change != "is cut":
        kept.high_watermarks[OTHERS], kept.watermark_epochs[OTHERS] = 9, 6
    with suppress(Killed):
        save = kept.begin_save() if change == "moves" else kept.begin_cut(ORDERS, recovery_point=11, end=16)
        save()
    filesystem.writes_left = 1_000
    found = KeptOffsets(filesystem, PATH)
    found.read()
    # The replica knew in epoch 6 all that it knew in epoch 5.
    known = [(found.high_watermarks[each], found.watermark_epochs.get(each)) for each in (ORDERS, OTHERS)]
    assert known[0] in {(18, 5), (16, 5)}
    assert known[1] in {(7, 5), (7, 6), (9, 6)}


def test_a_broker_without_replicated_partitions_has_no_file_of_their_epochs() -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directory(PATH)
    KeptOffsets(filesystem, PATH).begin_save()()
    assert not filesystem.exists(f"{PATH}/{WATERMARK_EPOCH_FILE}")

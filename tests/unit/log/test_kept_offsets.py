"""The offsets that a data directory keeps, when the disk fails between two writes of them."""

import pytest

from cordwood.log.directory.kept_offsets import KeptOffsets
from cordwood.log.files.memory_filesystem import UNBOUNDED_BYTES, MemoryFilesystem
from cordwood.model.errors import DiskFull
from cordwood.model.identifiers import TopicPartition

PATH = "/data"
ORDERS = TopicPartition("orders", 0)


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

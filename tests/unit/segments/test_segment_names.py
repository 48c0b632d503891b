"""The names of a segment's files."""

import pytest

from cordwood.segments.names import Stage, Suffix, parse_segment_file, segment_file


def test_a_file_is_named_by_the_offset_it_begins_at() -> None:
    assert segment_file("data/orders-0", 0, Suffix.LOG) == "data/orders-0/00000000000000000000.log"
    assert segment_file("d", 368769, Suffix.TIME_INDEX) == "d/00000000000000368769.timeindex"
    assert segment_file("d", 7, Suffix.INDEX, Stage.CLEANED) == "d/00000000000000000007.index.cleaned"
    assert segment_file("d", 2**63 - 1, Suffix.SNAPSHOT) == "d/09223372036854775807.snapshot"


@pytest.mark.parametrize("suffix", list(Suffix))
@pytest.mark.parametrize("stage", list(Stage))
def test_every_name_is_read_back(suffix: Suffix, stage: Stage) -> None:
    path = segment_file("data/a-1", 12, suffix, stage)
    assert parse_segment_file(path) == (12, suffix, stage)
    assert parse_segment_file(path.rpartition("/")[2]) == (12, suffix, stage)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "12.log",
        "0000000000000000000x.log",
        "00000000000000000000.log.deleted.deleted",
        "00000000000000000000.log\n",
        "00000000000000000000.dat",
        "99999999999999999999.log",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log",
    ],
)
def test_other_files_are_not_a_segments(name: str) -> None:
    assert parse_segment_file(name) is None

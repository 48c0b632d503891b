"""The plan of a batch: what of it is compared, how it is packed, and which files are none."""

from pathlib import Path

import pytest

from cordwood.spark.checkpoints.plans import Plan, UnreadablePlan, read_plan

TEXT = 'v1\n{"batchWatermarkMs":0,"conf":{"a":"1"}}\n{"orders": {"0": 5}}\n-'


def test_plans_are_the_same_if_their_sources_are() -> None:
    plan = Plan.parse(TEXT)
    assert plan.sources == ('{"orders": {"0": 5}}', "-")
    assert plan.digest == Plan.parse(TEXT.replace('"1"', '"2"')).digest
    assert plan.digest != Plan.parse(TEXT.replace("5", "6")).digest
    assert plan.digest != Plan.parse(TEXT.removesuffix("\n-")).digest


def test_a_packed_plan_is_unpacked_as_it_was_or_left_out_as_a_whole() -> None:
    plan = Plan.parse(TEXT)
    packed = plan.packed(1000)
    assert Plan.unpack(packed) == plan
    assert plan.packed(len(packed) - 1) == b""
    for garbage in (b"", b"garbage", packed[:-1]):
        with pytest.raises(ValueError, match="is no packed plan"):
            Plan.unpack(garbage)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "is missing"),
        (b"", "is empty"),
        (bytes(40), "has 40 bytes and no plan"),
        (b"v1\n", "names no source"),
        (TEXT[:30].encode(), "names no source"),
        (TEXT[:-6].encode(), "is torn"),
        (b"hello\n{}\n{}", "does not begin with a version"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_what_is_left_of_a_file_is_no_plan(tmp_path: Path, content: bytes | None, problem: str) -> None:
    (tmp_path / "offsets").mkdir()
    if content is not None:
        (tmp_path / "offsets" / "3").write_bytes(content)
    with pytest.raises(UnreadablePlan, match=problem):
        read_plan(tmp_path, 3)

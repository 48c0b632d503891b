"""The plan of a batch: comparing, packing, and files that are no plan."""

from pathlib import Path

import pytest

from cordwood.spark.checkpoints.plans import Plan, UnreadablePlan, read_plan, with_query_name, without_query_name

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


def test_the_name_of_the_query_travels_with_a_packed_plan_and_without_one() -> None:
    packed = Plan.parse(TEXT).packed(1000)
    for plan in (packed, b""):
        labelled = with_query_name(plan, "commandes payées", 2000)
        assert without_query_name(labelled) == (plan, "commandes payées")
        assert without_query_name(plan) == (plan, None)
    assert with_query_name(packed, "orders", len(packed) + 3) == packed, "the plan is worth more than the name"
    assert with_query_name(packed, "x" * 5000, 16_000) == packed
    for other in (b"name", b"\x00\x00name", b"\xff\xffname", b"garbage\x00\x02name"):
        assert without_query_name(other)[1] in (None, "")


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

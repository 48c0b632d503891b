"""Sets of offsets against Python's own sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.pipelines.definition.errors import DamagedState
from cordwood.pipelines.editions.requeue_plan import OffsetSet

ADDRESSES = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 30)))


@given(ADDRESSES, ADDRESSES)
def test_it_has_what_was_added_and_survives_json(first: set[tuple[int, int]], second: set[tuple[int, int]]) -> None:
    made = OffsetSet().with_offsets(first).union(OffsetSet().with_offsets(second))
    assert made == OffsetSet().with_offsets(first).with_offsets(second)
    assert len(made) == len(first | second)
    assert {(p, o) for p in range(3) for o in range(31) if (p, o) in made} == first | second
    assert OffsetSet.from_json(made.to_json()) == made


def test_neighbours_are_one_range() -> None:
    assert OffsetSet().with_offsets([(0, 1), (0, 2), (0, 3), (0, 5)]).ranges == {0: ((1, 4), (5, 6))}


@pytest.mark.parametrize("value", [[], {"0": 5}, {"0": [[3, 1]]}, {"0": [[0, 5], [3, 7]]}, {"x": []}])
def test_what_is_no_set_is_not_taken_for_one(value: object) -> None:
    with pytest.raises(DamagedState):
        OffsetSet.from_json(value)

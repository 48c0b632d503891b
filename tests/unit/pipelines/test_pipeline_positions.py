"""Positions, partition by partition."""

import pytest

from cordwood.pipelines.definition.errors import DamagedState
from cordwood.pipelines.editions.positions import ahead, distance, from_json, furthest, in_words, to_json
from cordwood.pipelines.execution.spark_progress import offsets_between

FIRST = {"orders": {0: 12, 1: 3}, "returns": {0: 1}}
SECOND = {"orders": {0: 10, 1: 5, 2: 7}}


def test_positions_are_compared_partition_by_partition() -> None:
    assert ahead(FIRST, SECOND) == {"orders": {0: (10, 12)}, "returns": {0: (0, 1)}}
    assert ahead(SECOND, FIRST) == {"orders": {1: (3, 5), 2: (0, 7)}}
    assert distance(ahead(SECOND, FIRST)) == 9
    assert ahead(FIRST, FIRST) == {}
    assert furthest(FIRST, SECOND) == {"orders": {0: 12, 1: 5, 2: 7}, "returns": {0: 1}}


def test_positions_are_told_in_words_and_not_all_of_them() -> None:
    assert in_words(ahead(FIRST, SECOND)) == "orders/0: 10 to 12; returns/0: 0 to 1"
    assert in_words(ahead(FIRST, SECOND), limit=1) == "orders/0: 10 to 12; and 1 more partitions"


def test_positions_are_kept_as_json() -> None:
    assert to_json(FIRST) == {"orders": {"0": 12, "1": 3}, "returns": {"0": 1}}
    assert from_json(to_json(FIRST)) == FIRST
    assert from_json({"orders": {"0": 12}, "orders began at": {"0": 5}}) == {"orders": {0: 12}}
    with pytest.raises(DamagedState):
        from_json({"orders": 5})
    with pytest.raises(DamagedState):
        from_json({"orders": {"0": None}})


def test_the_rows_of_a_first_batch_are_counted_from_where_its_end_says_that_it_began() -> None:
    first = {"startOffset": None, "endOffset": '{"orders": {"00": 3, "01": 0, "0": 8, "1": 2}}'}
    assert offsets_between({"sources": [first]}, "startOffset", "endOffset") == 7
    unknown = {"startOffset": None, "endOffset": '{"orders": {"0": 8}}'}
    assert offsets_between({"sources": [unknown]}, "startOffset", "endOffset") is None
    later = {"startOffset": '{"orders": {"00": 3, "0": 8}}', "endOffset": '{"orders": {"0": 10}}'}
    assert offsets_between({"sources": [later]}, "startOffset", "endOffset") == 2

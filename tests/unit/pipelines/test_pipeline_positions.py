"""Positions, partition by partition."""

import pytest

from cordwood.pipelines.definition.errors import DamagedState
from cordwood.pipelines.editions.positions import ahead, distance, from_json, furthest, in_words, to_json
from cordwood.pipelines.execution.spark_progress import of_batches, offsets_left, records_read

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


def test_the_lag_of_a_batch_is_how_far_the_log_went_beyond_it() -> None:
    first = {
        "endOffset": '{"orders": {"00": 3, "01": 0, "0": 8, "1": 2}}',
        "latestOffset": '{"orders": {"0": 9, "1": 4}}',
    }
    assert offsets_left({"sources": [first]}) == 3
    assert offsets_left({"sources": [{**first, "latestOffset": None}]}) is None


def test_the_records_of_a_stateful_batch_are_those_that_its_inputs_have_counted() -> None:
    counts = {"cordwood input orders": {"rows": 3, "failed": 1}, "cordwood input prices": {"rows": 4}, "mine": {"n": 9}}
    assert records_read({"observedMetrics": counts}) == 7
    assert records_read({"observedMetrics": {}}) == 0, "a batch that only ends windows"


def test_the_progress_of_a_query_that_waits_is_not_that_of_its_next_batch() -> None:
    done = {"batchId": 4, "durationMs": {"addBatch": 5, "triggerExecution": 9}}
    waiting = {"batchId": 5, "durationMs": {"latestOffset": 1, "triggerExecution": 1}}
    assert of_batches([done, waiting]) == {4: done}

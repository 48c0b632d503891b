"""The parts of a batch's time, in words."""

from cordwood.pipelines.editions.events import Spent, in_words, is_empty_batch, spent_in_batch, spent_in_words

OUTPUTS = {"priced": Spent(1500, 1100, 350, 30), "orders": Spent(700, 200, 500, 400)}


CHANGE = {"files_added": 2, "bytes_added": 9, "files_searched": 3, "files_rewritten": 1, "bytes_rewritten": 7}


def test_what_can_be_told_apart_is_told() -> None:
    spent = spent_in_batch(OUTPUTS, staging_ms=2300, commit_ms=470, is_one_pass=True)
    assert (spent["other"], spent["commit"]) == (100, 40)
    told = (
        "priced 1.53 s (read, decode and function 1.10 s, write 0.35 s, commit 0.03 s), "
        "orders 1.10 s (read, decode and function 0.20 s, write 0.50 s, commit 0.40 s; "
        "files: 3 searched, 1 rewritten, 2 added), commit 0.04 s, other 0.10 s"
    )
    tables = {"orders": CHANGE}
    assert spent_in_words({"spent": spent, "tables": tables}) == told
    assert spent_in_words({"spent": {**spent, "spark": 210}, "tables": tables}) == f"{told}, Spark 0.21 s"


def test_an_event_that_does_not_tell_has_no_words() -> None:
    assert spent_in_words({}) is None


def test_the_parts_of_a_batch_add_up_to_its_staging_and_its_commit() -> None:
    spent = spent_in_batch(OUTPUTS, staging_ms=2300, commit_ms=470, is_one_pass=True)
    assert sum(each["total"] for each in spent["outputs"].values()) + spent["commit"] + spent["other"] == 2300 + 470


def test_a_batch_that_went_step_by_step_says_so() -> None:
    spent = spent_in_batch(OUTPUTS, staging_ms=9200, commit_ms=40, is_one_pass=False)
    assert "finding poison 7.00 s" in str(spent_in_words({"spent": spent}))


def test_the_line_of_a_batch_has_it_only_if_asked_to() -> None:
    event = {
        "event": "batch",
        "pipeline": "p",
        "batch": 3,
        "at_ms": 0,
        "rows_in": 5,
        "rows_out": {"priced": 5},
        "repeated": [],
        "quarantined": 0,
        "lag": 0,
        "duration_ms": 2000,
        "spent": spent_in_batch(OUTPUTS, staging_ms=2300, commit_ms=40, is_one_pass=True),
    }
    assert in_words(event) == "00:00:00 batch 3, 5 in, 5 to priced, lag 0, 2.0 s"
    assert in_words(event, verbose=True).startswith("00:00:00 batch 3, 5 in, 5 to priced, lag 0, 2.0 s: priced 1.53 s")


def test_a_batch_without_records_is_empty_unless_it_wrote_something() -> None:
    batch = {"event": "batch", "rows_in": 0, "rows_out": {"out": 0}, "quarantined": 0}
    assert is_empty_batch(batch)
    assert not is_empty_batch({**batch, "rows_out": {"out": 1}}), "a window has ended"
    assert not is_empty_batch({**batch, "rows_in": None})
    assert not is_empty_batch({"event": "started"})

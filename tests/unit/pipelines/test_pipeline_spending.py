"""Where the time of a batch went, in words."""

from cordwood.pipelines.events import in_words
from cordwood.pipelines.spending import Spent, spent_in_batch, spent_in_words

OUTPUTS = {"priced": Spent(1500, 1100, 350), "orders": Spent(700)}


def test_what_can_be_told_apart_is_told() -> None:
    spent = spent_in_batch(OUTPUTS, staging_ms=2300, commit_ms=40, is_one_pass=True)
    assert spent["other"] == 100
    told = "priced 1.50 s (rows 1.10 s, writing 0.35 s), orders 0.70 s, commit 0.04 s, other 0.10 s"
    assert spent_in_words(spent) == told
    assert spent_in_words({**spent, "spark": 210}) == f"{told}, Spark 0.21 s"


def test_a_batch_that_went_step_by_step_says_so() -> None:
    spent = spent_in_batch(OUTPUTS, staging_ms=9200, commit_ms=40, is_one_pass=False)
    assert "finding poison 7.00 s" in spent_in_words(spent)


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
    assert in_words(event, verbose=True).startswith("00:00:00 batch 3, 5 in, 5 to priced, lag 0, 2.0 s: priced 1.50 s")

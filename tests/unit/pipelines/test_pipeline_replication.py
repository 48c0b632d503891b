"""How many copies the topics of a pipeline have."""

import pytest

from cordwood.pipelines import pipeline, topic
from cordwood.pipelines.definition.errors import InvalidDefinition, Refusal
from cordwood.pipelines.definition.replication import UNSAID, Copies, Replication, copies_of_new

ONE = Copies(1, 1, False)
THREE = Copies(3, 1, False)
SAFE = Copies(3, 2, True)


@pytest.mark.parametrize(
    ("asked", "inputs", "replaced", "copies"),
    [
        (UNSAID, [ONE], None, ONE),
        (UNSAID, [ONE, SAFE, THREE], None, SAFE),
        (UNSAID, [Copies(2, 2, True), THREE], None, THREE),
        (UNSAID, [ONE], SAFE, SAFE),
        (UNSAID, [SAFE], ONE, SAFE),
        (UNSAID, [Copies(1, 2, True)], None, Copies(1, 1, True)),
        (Replication(1), [SAFE], None, Copies(1, 1, True)),
        (Replication(5), [SAFE], None, Copies(5, 2, True)),
        (Replication(3, 2), [ONE], None, SAFE),
        (Replication(min_insync=1), [SAFE], None, Copies(3, 1, True)),
        (Replication(1), [ONE], SAFE, SAFE),
    ],
    ids=[
        "one node",
        "the widest input",
        "replicas before those in sync",
        "at least those of the topic that it replaces",
        "at least those of the input",
        "an input that nobody can write",
        "fewer, said so",
        "more, said so",
        "both said",
        "fewer in sync, said so",
        "said, and fewer than the topic that it replaces",
    ],
)
def test_a_new_topic_is_kept_as_safely_as_the_widest_input_or_as_it_was_said(
    asked: Replication, inputs: list[Copies], replaced: Copies | None, copies: Copies
) -> None:
    assert copies_of_new("orders.priced", asked, inputs, replaced) == copies


def test_a_topic_that_nobody_could_write_is_refused() -> None:
    told = r"orders\.priced would have 1 of the 2 replicas that min_insync wants"
    with pytest.raises(Refusal, match=told) as refused:
        copies_of_new("orders.priced", Replication(min_insync=2), [ONE], None)
    assert "replicas=2" in refused.value.hint


def test_what_a_topic_says_comes_before_what_its_pipeline_says() -> None:
    @pipeline(
        version=1,
        inputs=topic("orders"),
        outputs=topic("orders.priced", replicas=2),
        replicas=3,
        min_insync=2,
    )
    def price(orders):  # type: ignore[no-untyped-def]
        return orders

    assert price.settings.replication == Replication(3, 2)
    assert price.topics["orders.priced"].replication.within(price.settings.replication) == Replication(2, 2)


@pytest.mark.parametrize(
    ("replicas", "min_insync", "told"),
    [(0, None, "replicas=0"), (True, None, "replicas=True"), (2, 3, "min_insync=3 could never be reached")],
)
def test_copies_that_cannot_be_are_refused_in_the_line_that_asks(
    replicas: int, min_insync: int | None, told: str
) -> None:
    with pytest.raises(InvalidDefinition, match=rf"test_pipeline_replication.py:\d+: .*{told}"):
        topic("orders.priced", replicas=replicas, min_insync=min_insync)


def test_an_input_is_not_made_by_its_reader() -> None:
    with pytest.raises(InvalidDefinition, match="the input orders is not made here") as refused:

        @pipeline(version=1, inputs=topic("orders", replicas=3), outputs=topic("orders.priced"))
        def price(orders):  # type: ignore[no-untyped-def]
            return orders

    assert "cordwood cluster reassign orders" in refused.value.hint

"""Declarations of rules: what is refused before anything runs."""

from typing import Any

import pytest

from cordwood.pipelines import expect, pipeline, table, topic
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import InvalidDefinition
from cordwood.pipelines.definition.expectations import Else


def test_rows_are_judged_by_the_gravest_rules_first() -> None:
    rules = [expect("a", else_="drop"), expect("b", else_="quarantine"), expect("c", else_="fail", name="see")]
    declared = table("t", expect=rules)
    assert [(rule.name, rule.else_) for rule in declared.expect] == [
        ("see", Else.FAIL),
        ("b", Else.QUARANTINE),
        ("a", Else.DROP),
    ]
    assert table("t", expect=rules[0]).expect == (rules[0],)


def test_a_rule_without_a_name_is_known_by_its_condition_in_one_line() -> None:
    rule = expect("amount >= 0\n  and amount < 10", else_="drop")
    assert (rule.name, rule.error) == ("amount >= 0 and amount < 10", "breaks the rule amount >= 0 and amount < 10")
    assert expect("a > 0", else_="drop", name="positive").error == "breaks the rule positive: a > 0"


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: expect("", else_="drop"), "no condition"),
        (lambda: expect("a", else_="ignore"), "else_='ignore'"),
        (lambda: expect("a", else_="drop", name=" "), "expect('a'): the name is empty"),
        (
            lambda: expect("a" * 3000, else_="drop"),
            f"'{'a' * 59}…', of 3,000 characters, is too long for a rule's name",
        ),
        (lambda: topic("t", expect="amount > 0"), "topic t: expect='amount > 0'"),  # type: ignore[arg-type]
        (lambda: table("t", expect=["amount > 0"]), "table t: 'amount > 0' is no expectation"),  # type: ignore[list-item]
    ],
)
def test_what_is_no_rule_is_refused_with_its_line(declare: Any, said: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        declare()
    assert said in caught.value.message
    assert caught.value.message.startswith(f"{__file__}:")
    assert caught.value.hint or "condition" in caught.value.message


def declared(of_input: Any, of_output: Any, **settings: Any) -> Pipeline:
    @pipeline(version=1, inputs=topic("t", expect=of_input), outputs=table("o", expect=of_output), **settings)
    def p(rows: Any) -> Any:
        return rows

    return p


def test_a_name_means_one_rule_wherever_it_is_declared() -> None:
    made = declared(expect("a", else_="drop"), expect("a", else_="drop"))
    assert list(made.rules) == ["a"]
    with pytest.raises(InvalidDefinition, match="two rules with the name a") as caught:
        declared(expect("a", else_="drop"), expect("a", else_="fail"))
    assert "name='…' tells them apart" in caught.value.hint


def test_a_stateful_pipeline_sets_no_records_aside_for_rows_of_its_outputs() -> None:
    declared(expect("a", else_="quarantine"), expect("b", else_="drop"), stateful=True)
    with pytest.raises(InvalidDefinition, match="table o: the rule a would take a record out of a state"):
        declared((), expect("a", else_="quarantine"), stateful=True)

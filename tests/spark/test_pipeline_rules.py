"""Rules: rows that break one are set aside with their records, dropped or fail the batch, and are counted by rule."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Load, Produce, Record
from tests.spark.pipeline_workshop import Workshop, orders
from tests.spark.test_pipeline_one_pass import jobs_of
from tests.spark.test_pipeline_quarantine import headers_of, requeued

from cordwood.cli.pipeline.view import editions_of
from cordwood.pipelines.definition.errors import InvalidDefinition, OverBudget, RuleBroken
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.events import in_words
from cordwood.pipelines.execution.sources import streams

READING = {"startingOffsets": "earliest", "includeHeaders": "true", "kafka.isolation.level": "read_committed"}

PIPELINE = """
@pipeline("{name}", version=1, {settings}
          inputs=topic("{topic}", value=json("id string, amount int"), expect=[{of_input}]),
          outputs={{"out": table("{name}", {key} expect=[{of_output}])}}, quarantine=budget(rows={rows}))
def judged(orders):
    return {returned}
"""


@pytest.fixture
def workshop(tmp_path: Path, spark: SparkSession, broker: RunningBroker) -> Workshop:
    return Workshop(tmp_path, spark, broker.bootstrap)


def declare(
    workshop: Workshop,
    topic: str,
    *,
    of_input: str = "",
    of_output: str = "",
    rows: int = 0,
    returned: str = "orders",
    key: str = "",
    settings: str = "",
) -> str:
    name = f"p-{topic[-6:]}"
    workshop.write(
        PIPELINE.format(
            name=name,
            topic=topic,
            of_input=of_input,
            of_output=of_output,
            rows=rows,
            returned=returned,
            key=key,
            settings=settings,
        )
    )
    return name


def ids(workshop: Workshop, name: str) -> list[Any]:
    return [row[0] for row in workshop.rows(name)]


def aside(load: Load, name: str) -> dict[str, dict[str, str]]:
    """The headers of quarantined records, by value."""
    return {bytes(row["value"]).decode(): headers_of(row) for row in load(f"{name}.quarantine", **READING).collect()}


POSITIVE = "expect('amount >= 0', else_='{}', name='positive')"


@pytest.mark.landing
def test_rows_of_an_input_are_set_aside_or_dropped_in_the_one_pass_and_counted_by_rule(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    of_input = POSITIVE.format("quarantine") + ", expect(\"id <> 'o3' -- not\", else_='drop', name=\"o'3\")"
    name = declare(workshop, topic, of_input=of_input, rows=3, returned="orders.where('true')")
    null = Record(b'{"id": "null"}', b"k")
    both = Record(b'{"id": "o3", "amount": -3}', b"k")
    put(topic, [*orders([1, -2, 3, 4]), null, both, Record(None, b"o1")])
    (event,), jobs = jobs_of(workshop)
    assert (event["rows_in"], event["rows_out"], event["quarantined"]) == (7, {"out": 3}, 3)
    assert event["rules"] == {"positive": {"quarantined": 3}, "o'3": {"dropped": 1}}
    assert event["spent"]["one_pass"]
    assert len(jobs) == 2, "the output, and the quarantine"
    assert "3 quarantined, 3 quarantined by positive, 1 dropped by o'3" in in_words(event)
    assert sorted(map(str, ids(workshop, name))) == ["None", "o1", "o4"], "the tombstone is not judged"
    told = aside(load, name)
    assert {json.loads(value)["id"] for value in told} == {"o-2", "null", "o3"}
    for headers in told.values():
        assert headers["cordwood.rule"] == "positive"
        assert headers["cordwood.error"] == "breaks the rule positive: amount >= 0"

    put(topic, orders([-9]))
    workshop.run()
    (view,) = editions_of(workshop.project.state(name))
    assert view.as_json()["rules"] == {"positive": {"quarantined": 4}, "o'3": {"dropped": 1}}
    assert view.rules() == [["v1", "o'3", "dropped", 1, 0], ["v1", "positive", "quarantined", 4, 1]]


def test_poison_has_no_rule_and_counts_against_the_same_budget(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    name = declare(workshop, topic, of_input=POSITIVE.format("quarantine"), rows=2)
    put(topic, [*orders([-1]), Record(b"{nonsense"), *orders([-3])])
    with pytest.raises(OverBudget, match=r"3 poison records among the 3 of batch 0.*breaks the rule positive"):
        workshop.run()
    assert ids(workshop, name) == []
    declare(workshop, topic, of_input=POSITIVE.format("quarantine"), rows=3)
    (event,) = workshop.run()
    assert (event["quarantined"], event["rules"]) == (3, {"positive": {"quarantined": 2}})
    assert "cordwood.rule" not in aside(load, name)["{nonsense"]


@pytest.mark.parametrize("returned", ["orders", "orders.limit(1000)"], ids=["one-pass", "step-by-step"])
def test_a_row_of_an_output_takes_its_whole_record_to_quarantine(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load, returned: str
) -> None:
    topic = make_topic()
    twice = f"{returned}.withColumn('n', F.explode(F.sequence(F.lit(0), F.lit(1)))).withColumn('x', F.expr('amount-n'))"
    of_output = "expect('x >= 0', else_='quarantine'), expect('x <> 7', else_='drop')"
    name = declare(workshop, topic, of_output=of_output, rows=1, returned=twice)
    put(topic, orders([0, 5, 7]))
    (event,) = workshop.run()
    assert (event["rows_in"], event["rows_out"], event["quarantined"]) == (3, {"out": 3}, 1)
    assert event["rules"] == {"x >= 0": {"quarantined": 1}, "x <> 7": {"dropped": 1}}
    assert ids(workshop, name) == ["o5", "o5", "o7"], "no row of o0, though only one of its rows breaks the rule"
    ((value, headers),) = aside(load, name).items()
    assert (json.loads(value)["id"], headers["cordwood.rule"]) == ("o0", "x >= 0")


def test_dropped_rows_of_outputs_are_counted_in_the_one_pass(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic(partitions=2)
    of_output = "expect('amount > 2', else_='drop'), expect('amount <> 9', else_='drop'), expect('true', else_='fail')"
    name = declare(workshop, topic, of_output=of_output, returned="orders.drop('_record')")
    put(topic, [*orders(range(10)), *orders([9, 11], partition=1)])
    (event,), jobs = jobs_of(workshop)
    assert event["spent"]["one_pass"]
    assert len(jobs) == 1
    assert event["rules"] == {"amount > 2": {"dropped": 3}, "amount <> 9": {"dropped": 2}}
    assert sorted(row[1] for row in workshop.rows(name)) == [3, 4, 5, 6, 7, 8, 11]


def test_rules_of_several_outputs_are_counted_together(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic(partitions=2)
    name = f"p-{topic[-6:]}"
    workshop.write(
        f"""
        small = expect("amount < 8", else_="drop", name="small")

        @pipeline("{name}", version=1, inputs=topic("{topic}", value=json("id string, amount int"),
                                                    expect=expect("amount <> 1", else_="drop")),
                  outputs={{"a": topic("{name}.a", key="id", expect=small),
                           "b": table("{name}", key="id", expect=small)}})
        def both(orders):
            return {{"a": orders, "b": orders}}
        """
    )
    put(topic, [*orders(range(10)), Record(None, b"o3")])
    (event,), jobs = jobs_of(workshop)
    assert (event["rows_in"], event["rows_out"], event["spent"]["one_pass"]) == (11, {"a": 8, "b": 7}, True)
    assert event["rules"] == {"small": {"dropped": 4}, "amount <> 1": {"dropped": 1}}
    assert len(jobs) == 2
    assert ids(workshop, name) == ["o0", "o2", "o4", "o5", "o6", "o7"], "the tombstone has deleted o3"
    assert load(f"{name}.a", **READING).where("value is null").count() == 1


@pytest.mark.parametrize(
    ("of_input", "of_output", "returned", "shown"),
    [
        (POSITIVE.format("fail"), "", "orders", r"input \S+, \S+pipeline.py:5\): {topic}/0@1, {topic}/0@3"),
        ("", POSITIVE.format("fail"), "orders", r"table \S+, \S+pipeline.py:6\): {topic}/0@1, {topic}/0@3"),
        ("", POSITIVE.format("fail"), "orders.limit(99)", r"table \S+, \S+\): {topic}/0@1, {topic}/0@3"),
        ("", POSITIVE.format("fail"), "orders.drop('_record')", r'table \S+, \S+\): {{"id":"o-1","amount":-1}}'),
    ],
    ids=["input", "output", "step-by-step", "no-record"],
)
def test_a_rule_that_fails_the_batch_says_which_records_break_it_and_nothing_is_written(
    workshop: Workshop,
    make_topic: MakeTopic,
    put: Produce,
    load: Load,
    of_input: str,
    of_output: str,
    returned: str,
    shown: str,
) -> None:
    topic = make_topic()
    name = declare(workshop, topic, of_input=of_input, of_output=of_output, returned=returned, rows=9)
    put(topic, [*orders([0, -1, 2, -3]), Record(b"{nonsense")])
    with pytest.raises(RuleBroken, match="2 rows of batch 0 break the rule positive: amount >= 0") as caught:
        workshop.run()
    caught.match(shown.format(topic=topic))
    assert caught.value.code == "RULE_BROKEN"
    assert ids(workshop, name) == []
    assert aside(load, name) == {}
    declare(workshop, topic, of_input="", of_output="", returned=returned, rows=9)
    (event,) = workshop.run()
    assert (event["batch"], event["rows_out"]["out"], event["rules"]) == (0, 4, {})


WRONG = [
    ("of_input", "expect('amount >=', else_='drop')", "is no SQL condition: Syntax error"),
    ("of_input", "expect('amont >= 0', else_='drop')", "names amont, which is no column there"),
    ("of_input", "expect('amount', else_='drop')", "is int, neither true nor false"),
    ("of_input", "expect('sum(amount) > 1', else_='drop')", "is no condition on a row"),
    ("of_input", "expect('rand() > 0.5', else_='drop')", "is not the same for the same row"),
    ("of_input", "expect('amount > 0) or (true', else_='drop')", "is no SQL condition"),
    ("of_output", "expect('amount >= 0', else_='drop')", "names amount, which is no column there"),
    ("of_output", "expect('id > 0', else_='quarantine')", "its rows have no column _record"),
]


@pytest.mark.parametrize("stateful", ["", "stateful=True,"], ids=["batches", "stateful"])
def test_a_rule_that_cannot_be_asked_is_refused_before_the_first_batch_with_its_line(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load, stateful: str
) -> None:
    topic = make_topic()
    put(topic, orders([1]))
    returned = "orders.groupBy('id').agg(F.count('*').alias('n'))"
    settings = stateful and stateful + " output_mode='update',"
    for where, rule, said in WRONG:
        if stateful and "quarantine" in rule:
            continue
        options: dict[str, Any] = {where: rule}
        name = declare(workshop, topic, returned=returned, settings=settings, key="key='id',", **options)
        with pytest.raises(InvalidDefinition) as caught:
            workshop.run()
        assert said in caught.value.message
        assert caught.value.message.startswith(f"{workshop.file}:{5 if where == 'of_input' else 6}: ")
        assert workshop.project.state(name).live() is None, "no edition was made"
    right = "expect('id is not null', else_='fail')"
    declare(workshop, topic, of_output=right, returned=returned, settings=settings, key="key='id',")
    (event,) = workshop.run()
    assert event["batch"] == 0
    assert workshop.rows(name) == [("o1", 1)]


def test_a_function_that_cannot_be_called_without_rows_has_its_rules_checked_with_the_first_batch(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    put(topic, orders([1]))
    returned = "orders.where(F.col('amount') >= orders.first()['amount'])"
    name = declare(workshop, topic, of_output="expect('amont >= 0', else_='drop')", returned=returned)
    with pytest.raises(InvalidDefinition, match="names amont, which is no column there"):
        workshop.run()
    assert ids(workshop, name) == []


def test_a_condition_on_an_output_that_raises_condemns_its_record_alone(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    name = declare(workshop, topic, of_output="expect('100 / amount > 1', else_='drop')", rows=1)
    put(topic, orders([1, 0, 200, 3]))
    (event,) = workshop.run()
    assert (event["quarantined"], event["rules"]) == (1, {"100 / amount > 1": {"dropped": 1}})
    assert ids(workshop, name) == ["o1", "o3"]
    ((_, headers),) = aside(load, name).items()
    assert "cordwood.rule" not in headers
    assert "DIVIDE_BY_ZERO" in headers["cordwood.error"]


def test_a_requeued_record_that_still_breaks_a_rule_goes_back(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    name = declare(workshop, topic, of_input=POSITIVE.format("quarantine"), rows=9)
    put(topic, orders([-1, -2, -3, 4]))
    workshop.run()
    # A rule that fails batches sets records aside in a requeue: a requeue that fails would keep `run` from running.
    mended = "expect('amount <> -1', else_='fail')"
    declare(workshop, topic, of_input=mended, of_output="expect('amount <> -2', else_='fail')", rows=9)
    assert requeued(workshop, name) == 3
    assert ids(workshop, name) == ["o-3", "o4"]
    rows = load(f"{name}.quarantine", **READING).orderBy("offset").collect()
    again = sorted(headers_of(row)["cordwood.rule"] for row in rows[3:])
    assert again == ["amount <> -1", "amount <> -2"]
    put(topic, orders([5]))
    (event,) = workshop.run()
    assert event["rows_out"] == {"out": 1}


def test_a_repeated_batch_counts_the_records_that_it_had_set_aside(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    of_output = POSITIVE.format("quarantine")
    name = declare(workshop, topic, of_input="expect('amount <> 2', else_='quarantine')", of_output=of_output, rows=9)
    put(topic, orders([1, 2, -3]))
    (event,) = workshop.run()
    assert event["quarantined"] == 2
    workshop.forget_commit(name, 0)
    (again,) = workshop.run()
    assert again["quarantined"] == 2
    assert len(aside(load, name)) == 2
    assert ids(workshop, name) == ["o1"]


def test_rules_hold_in_stateful_pipelines(workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load) -> None:
    topic = make_topic()
    of_input = POSITIVE.format("quarantine") + ", expect('amount <> 3', else_='drop')"
    options = {
        "returned": "orders.groupBy('id').agg(F.sum('amount').alias('total'))",
        "settings": "stateful=True, output_mode='update',",
        "key": "key='id',",
    }
    of_output = "expect('total < 10', else_='drop')"
    name = declare(workshop, topic, of_input=of_input, of_output=of_output, rows=2, **options)
    put(topic, [*orders([1, -2, 3, 11]), Record(b"{nonsense")])
    (event,) = workshop.run()
    assert event["quarantined"] == 2
    assert event["rules"] == {
        "positive": {"quarantined": 1},
        "amount <> 3": {"dropped": 1},
        "total < 10": {"dropped": 1},
    }
    assert workshop.rows(name) == [("o1", 1)]
    assert aside(load, name)['{"id": "o-2", "amount": -2}']["cordwood.rule"] == "positive"

    put(topic, orders([3]))
    (event,) = workshop.run()
    assert (event["quarantined"], event["rules"]) == (0, {"amount <> 3": {"dropped": 1}})

    declare(workshop, topic, of_input="expect('amount <> 7', else_='fail')", of_output=of_output, rows=2, **options)
    put(topic, orders([7]))
    with pytest.raises(RuleBroken, match=rf"1 row of batch 2 breaks the rule amount <> 7 .*{topic}/0@6"):
        workshop.run()
    declare(workshop, topic, of_output="expect('total <> 7', else_='fail')", rows=2, **options)
    with pytest.raises(RuleBroken, match=r'1 row of batch 2 breaks the rule total <> 7 .*{"id":"o7","total":7}'):
        workshop.run()
    assert workshop.rows(name) == [("o1", 1)]


def test_plain_streams_leave_out_what_a_rule_drops_and_fail_on_the_rest(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, tmp_path: Path
) -> None:
    topic = make_topic()
    name = declare(
        workshop,
        topic,
        of_input="expect('amount <> 1', else_='drop'), expect('amount <> 9', else_='quarantine')",
        of_output="expect('amount <> 2', else_='drop'), expect('amount <> 8', else_='fail')",
    )

    def read(checkpoint: str) -> list[int]:
        rows = streams(load_pipeline(workshop.file), workshop.spark, bootstrap_servers=workshop.bootstrap)["out"]
        view = f"v_{name[2:]}_{checkpoint}"
        query = rows.writeStream.format("memory").queryName(view).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(row["amount"] for row in workshop.spark.table(view).collect())

    put(topic, orders([1, 2, 3]))
    assert read("a") == [3]
    for number in (8, 9):
        put(topic, orders([number]))
        with pytest.raises(Exception, match=f"breaks the rule amount <> {number}"):
            read(f"b{number}")
        if number == 8:
            declare(workshop, topic, of_input="expect('amount <> 9', else_='quarantine')")

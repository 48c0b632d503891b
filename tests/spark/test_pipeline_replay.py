"""Replay, compare, swap, rollback: a new version beside the live one, then in its place, and effects once for each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Load, Produce, Record
from tests.spark.pipeline_workshop import Workshop, orders

from cordwood.pipelines.comparison.in_process import compare_tables_here, compare_topics_here
from cordwood.pipelines.comparison.on_spark import compare, compare_topics
from cordwood.pipelines.definition.errors import InvalidRows, WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.definition.table_output import TableFormat
from cordwood.pipelines.editions.project import table_path, topic_name
from cordwood.pipelines.editions.swapping import rollback, swap
from cordwood.pipelines.execution.requeueing import Chosen, Requeue
from cordwood.pipelines.formats.table_formats import snapshot

PIPELINE = """
@pipeline("{name}", version={version}, inputs=topic("{topic}", value=json("id string, amount int")),
          outputs={{"priced": topic("{name}.priced", key="id"), "latest": table("{name}", key="id"),
                   "mails": topic("{name}.mails", key="id", replayable=False)}})
def priced(orders):
    priced = orders.withColumn("total", F.col("amount") * {factor})
    return {{"priced": priced, "latest": priced, "mails": priced}}
"""
READING = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}


@pytest.fixture
def workshop(tmp_path: Path, spark: SparkSession, broker: RunningBroker) -> Workshop:
    return Workshop(tmp_path, spark, broker.bootstrap)


def test_a_new_version_is_built_beside_the_live_one_and_takes_its_place(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load, spark: SparkSession
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    state = workshop.project.state(name)

    def version(number: int) -> None:
        workshop.write(PIPELINE.format(name=name, topic=topic, version=number, factor=10 * number))

    def written(suffix: str) -> list[tuple[str, int]]:
        values = [json.loads(bytes(row["value"])) for row in load(f"{name}.{suffix}", **READING).collect()]
        return sorted((value["id"], value["total"]) for value in values)

    version(1)
    put(topic, orders([1, 2, 3, 4]))
    workshop.run()
    version(2)
    fresh = workshop.replay()
    assert (fresh.name, fresh.topics[f"{name}.priced"]) == ("v2", f"{name}.priced.v2")
    assert fresh.caught_up_at_ms is not None
    assert [event["lag"] for event in workshop.told if event["event"] == "caught-up"] == [0]

    # Readers see no change.
    assert workshop.rows(name) == [(f"o{number}", number, number * 10) for number in (1, 2, 3, 4)]
    assert topic_name(f"{name}.priced", workshop.project.directory) == f"{name}.priced"

    live = snapshot(table_path(name, workshop.project.directory), TableFormat.DELTA)
    beside = snapshot(state.table_directory(fresh, name), TableFormat.DELTA)
    assert live is not None
    assert beside is not None
    difference = compare(spark, name, ["id"], live, beside, samples=2)
    assert (difference.live_rows, difference.fresh_rows, difference.changed) == (4, 4, 4)
    assert (difference.only_live, difference.only_fresh, len(difference.samples)) == (0, 0, 2)
    sample = difference.samples[0]
    number = int(sample["key"]["id"][1:])
    assert (sample["kind"], sample["live"], sample["fresh"]) == (
        "changed",
        {"total": number * 10},
        {"total": number * 20},
    )

    here = compare_tables_here(name, ["id"], live, beside, samples=4)
    assert (here.changed, here.only_live, here.only_fresh) == (4, 0, 0)
    assert all(each in here.samples for each in difference.samples)
    topics = (f"{name}.priced", f"{name}.priced.v2")
    for found in (
        compare_topics(spark, "priced", topics, workshop.brokers, samples=4),
        compare_topics_here("priced", topics, workshop.brokers, samples=4),
    ):
        assert (found.live_rows, found.fresh_rows, found.changed) == (4, 4, 4)
        assert (found.only_live, found.only_fresh) == (0, 0)
        assert {"kind": "changed", "key": "o1", "live": {"total": 10}, "fresh": {"total": 20}} in found.samples

    # The live edition reads on; the edition that replaces it repeats none of its effects.
    version(1)
    put(topic, orders([5]))
    workshop.run()
    done = swap(state, None, force=False, skip_effects=False, timeout_s=1)
    assert (done.before.name, done.now.name) == ("v1", "v2")
    assert done.topics == {f"{name}.priced": (f"{name}.priced", f"{name}.priced.v2")}
    assert workshop.rows(name) == [(f"o{number}", number, number * 20) for number in (1, 2, 3, 4)]
    version(2)
    put(topic, orders([6]))
    (event,) = workshop.run()
    assert (event["rows_in"], event["rows_out"]["mails"]) == (2, 1)
    assert workshop.rows(name) == [(f"o{number}", number, number * 20) for number in range(1, 7)]

    # After a rollback the old edition goes on from where it stopped, and repeats no effect of the new one.
    rollback(state, timeout_s=1)
    assert workshop.rows(name) == [(f"o{number}", number, number * 10) for number in range(1, 6)]
    version(1)
    put(topic, orders([7]))
    (event,) = workshop.run()
    assert (event["rows_in"], event["rows_out"]["mails"]) == (2, 1)
    assert workshop.rows(name) == [(f"o{number}", number, number * 10) for number in range(1, 8)]
    assert written("priced") == [(f"o{number}", number * 10) for number in range(1, 8)]
    assert written("priced.v2") == [(f"o{number}", number * 20) for number in range(1, 7)]
    totals = [10, 20, 30, 40, 50, 120, 70]
    assert written("mails") == [(f"o{number}", total) for number, total in enumerate(totals, 1)]

    # An edition that has read further than the live one would leave records without their effects.
    put(topic, orders([8]))
    version(2)
    workshop.replay(fresh=True)
    with pytest.raises(WrongState, match=rf"v2\.2 of {name} has read further than v1, .*{topic}/0: 7 to 8"):
        swap(state, None, force=False, skip_effects=False, timeout_s=1)


BROKEN = """
@guarded("half int")
def halve(row):
    if row["amount"] % 2 and {version} == 1 or row["amount"] == 77:
        raise ValueError("odd")
    return {{"half": row["amount"] // 2}}

@pipeline("{name}", version={version}, inputs=topic("{topic}", value=json("id string, amount int")),
          outputs=table("{name}", key="id"), quarantine=budget(rows=10))
def halved(orders):
    return halve(orders)
"""


def test_a_replay_reads_no_more_rows_a_second_than_it_is_told(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    workshop.write(PIPELINE.format(name=f"p-{topic[-6:]}", topic=topic, version=1, factor=10))
    put(topic, orders(range(9)))
    workshop.run()
    command = [sys.executable, "-m", "cordwood.cli", "pipeline", "replay", str(workshop.file), "--json"]
    place = ["-d", str(workshop.project.directory), "-b", workshop.bootstrap]
    done = subprocess.run([*command, *place, "--rows-per-second", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    batches = [event for event in map(json.loads, done.stdout.splitlines()) if event["event"] == "batch"]
    assert [event["rows_in"] for event in batches] == [4, 4, 1]


def test_quarantined_records_go_through_again_once_and_never_over_newer_ones(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load, spark: SparkSession
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    workshop.write(BROKEN.format(name=name, topic=topic, version=1))
    newer = Record(b'{"id": "o3", "amount": 30}', b"o3")
    unkeyed = Record(b'{"id": "o5", "amount": 5}')
    put(topic, [*orders([1, 2, 3, 77]), unkeyed, newer])
    (event,) = workshop.run()
    assert event["quarantined"] == 4
    assert [row[:2] for row in workshop.rows(name)] == [("o2", 2), ("o3", 30)]

    # The function is mended. The record of o3 is not sent, because a newer one has been read; nor is the record without
    # a key, because a newer record may be about the same row.
    workshop.write(BROKEN.format(name=name, topic=topic, version=2))
    assert workshop.run(in_place=True) == []
    state = workshop.project.state(name)

    def would_requeue() -> Chosen:
        pipeline = load_pipeline(workshop.file)
        return Requeue(spark, pipeline, state, state.live_edition(), workshop.brokers).would_run(superseded=False)

    def requeue(superseded: bool = False) -> tuple[int, int, list[str]]:
        pipeline = load_pipeline(workshop.file)
        made = Requeue(spark, pipeline, state, state.live_edition(), workshop.brokers).run(superseded=superseded)
        return made.sent, made.failed_again, [str(origin) for origin in made.superseded]

    path = state.edition_directory("v1") / "requeue.json"
    in_quarantine = load(f"{name}.quarantine", **READING).count()
    chosen = would_requeue()
    assert list(map(str, chosen.records)) == [f"{topic}/0@0", f"{topic}/0@3"]
    assert (list(map(str, chosen.superseded)), chosen.begun) == ([f"{topic}/0@2", f"{topic}/0@4"], False)
    assert not path.exists()
    assert load(f"{name}.quarantine", **READING).count() == in_quarantine
    assert requeue() == (2, 1, [f"{topic}/0@2", f"{topic}/0@4"])
    assert [row[:2] for row in workshop.rows(name)] == [("o1", 1), ("o2", 2), ("o3", 30)]

    # The record that failed again is back in quarantine, and fails once more; the others are not sent twice. A
    # superseded record never blocks others, even if a whole requeue of them comes first.
    with pytest.MonkeyPatch.context() as fewer:
        fewer.setattr("cordwood.pipelines.execution.requeueing.MAX_RECORDS", 1)
        assert requeue() == (1, 1, [f"{topic}/0@2", f"{topic}/0@4"])
    assert load(f"{name}.quarantine", **READING).count() == 6
    assert [row[:2] for row in workshop.rows(name)] == [("o1", 1), ("o2", 2), ("o3", 30)]

    # The requeue was interrupted after its outputs were written: it is finished, without a double effect.
    kept = json.loads(path.read_text())
    begun = {**kept, "pending": {"0": [[5, 6]]}, "done": {"0": [[0, 1], [2, 3]]}}
    state.files.replace(path, begun)
    chosen = would_requeue()
    assert (list(map(str, chosen.records)), chosen.begun) == ([f"{topic}/0@3"], True)
    assert json.loads(path.read_text()) == begun
    assert requeue()[:2] == (1, 1)
    assert load(f"{name}.quarantine", **READING).count() == 6
    assert json.loads(path.read_text())["pending"] is None

    # Records that retention has removed may have had the same key. And offsets that were sent from a quarantine topic
    # mean nothing in another topic of its name.
    kept = json.loads(path.read_text())
    state.files.replace(path, {**kept, "topic_id": "of another topic"})
    admin = AdminClient({"bootstrap.servers": workshop.bootstrap})
    for answer in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        answer.result(120)
    assert requeue() == (0, 0, [f"{topic}/0@{offset}" for offset in (0, 2, 3, 4)])
    assert json.loads(path.read_text()) == {**kept, "done": {}}


UNLUCKY = """
@guarded("risk int")
def score(row):
    if row["amount"] == {unlucky}:
        raise ValueError("unlucky")
    return {{"risk": row["amount"]}}

@pipeline("{name}", version={version}, inputs=topic("{topic}", value=json("id string, amount int")),
          outputs={{"scored": table("{name}"), "mails": topic("{name}.mails", key="id", replayable=False)}},
          quarantine=budget(rows=1))
def scored(orders):
    return dict.fromkeys(["scored", "mails"], score(orders))
"""


def test_what_a_replay_set_aside_goes_through_again_without_the_effects_that_it_had(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load, spark: SparkSession
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    state = workshop.project.state(name)

    def version(number: int, unlucky: int) -> None:
        workshop.write(UNLUCKY.format(name=name, topic=topic, version=number, unlucky=unlucky))

    version(1, 1)
    put(topic, orders([1, 2]))
    workshop.run()
    assert json.loads((state.edition_directory("v1") / "effects.json").read_text())["batch"] == 0
    version(2, 2)
    workshop.replay()
    assert not (state.edition_directory("v2") / "effects.json").exists()
    swap(state, None, force=False, skip_effects=False, timeout_s=1)
    assert [row[0] for row in workshop.rows(name)] == ["o1"]
    version(2, 0)
    done = Requeue(spark, load_pipeline(workshop.file), state, state.live_edition(), workshop.brokers)
    assert done.run(superseded=False).rows_out == {"scored": 1, "mails": 0}
    assert [row[0] for row in workshop.rows(name)] == ["o1", "o2"]
    assert [bytes(row["key"]) for row in load(f"{name}.mails", **READING).collect()] == [b"o2"]

    # The edition that was live has set o1 aside, and its mail was never sent: it is due when this edition is live
    # again.
    rollback(state, timeout_s=1)
    version(1, 0)
    done = Requeue(spark, load_pipeline(workshop.file), state, state.live_edition(), workshop.brokers)
    assert done.run(superseded=False).rows_out == {"scored": 1, "mails": 1}


def test_a_change_in_place_that_is_refused_leaves_the_live_edition_as_it_was(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    state = workshop.project.state(name)
    workshop.write(PIPELINE.format(name=name, topic=topic, version=1, factor=10))
    put(topic, orders([1]))
    workshop.run()
    before = state.edition("v1")
    kept = state.definition(before).read_bytes()
    as_text = "10).withColumn('total', F.col('total').cast('string')"
    workshop.write(PIPELINE.format(name=name, topic=topic, version=3, factor=as_text))
    put(topic, orders([2]))
    with pytest.raises(InvalidRows):
        workshop.run(in_place=True)
    assert (state.edition("v1"), state.definition(before).read_bytes()) == (before, kept)

    # `run NAME` still runs the kept definition, and a change that fits becomes the edition's own.
    workshop.file.write_bytes(kept)
    assert [event["rows_in"] for event in workshop.run()] == [1]
    workshop.write(PIPELINE.format(name=name, topic=topic, version=4, factor=30))
    put(topic, orders([3]))
    workshop.run(in_place=True)
    after = state.edition("v1")
    assert (after.version, after.definition_file) == (4, "definition-v4.py")
    assert workshop.rows(name) == [("o1", 1, 10), ("o2", 2, 20), ("o3", 3, 90)]

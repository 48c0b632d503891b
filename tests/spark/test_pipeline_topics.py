"""Topics that a pipeline makes for itself, on a real broker."""

import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce, Record, numbered
from tests.spark.pipeline_workshop import Workshop, orders

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.editions import Edition
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.requeue_plan import OffsetSet, RequeuePlan, read_plan, write_plan
from cordwood.pipelines.execution.requeueing import Requeue
from cordwood.pipelines.execution.topics import Written, ensure_topics, existing_topics, prepare_topics


def setting(admin: AdminClient, topic: str, name: str) -> str | None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    value: str | None = admin.describe_configs([resource])[resource].result(120)[name].value
    return value


def test_a_topic_beside_the_live_one_is_its_likeness(
    broker: RunningBroker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    declared = make_topic(partitions=3, **{"cleanup.policy": "compact"})
    other, quarantine = f"new-{uuid.uuid4().hex[:8]}", f"aside-{uuid.uuid4().hex[:8]}"
    topics = [Written(f"{declared}.v2", declared), Written(other), Written(quarantine, is_quarantine=True)]
    inputs = [make_topic(partitions=2), make_topic(partitions=1)]
    assert ensure_topics(Bootstrap(broker.bootstrap), topics, inputs) == [f"{declared}.v2", other, quarantine]
    there = admin.list_topics(timeout=30).topics
    assert len(there[f"{declared}.v2"].partitions) == 3
    assert len(there[other].partitions) == 2, "a new one is as wide as the widest input"
    assert setting(admin, f"{declared}.v2", "cleanup.policy") == "compact"
    assert setting(admin, other, "cleanup.policy") == "delete"
    assert setting(admin, quarantine, "retention.ms") == "-1"
    assert int(setting(admin, quarantine, "max.message.bytes") or 0) > 10 << 20, "what came compressed is larger now"
    assert ensure_topics(Bootstrap(broker.bootstrap), topics, inputs) == [], "they are there now"


FILE = """
from cordwood.pipelines import pipeline, topic

@pipeline("{name}", version=1, inputs=topic("orders"), outputs=topic("{name}.out"))
def passed_on(orders):
    return orders
"""


def test_what_a_forgotten_edition_has_written_is_not_taken_for_the_new_one_s(
    broker: RunningBroker, put: Produce, tmp_path: Path
) -> None:
    name = f"p-{uuid.uuid4().hex[:6]}"
    (tmp_path / "passed_on.py").write_text(FILE.format(name=name))
    pipeline = load_pipeline(tmp_path / "passed_on.py")
    state = Project(tmp_path / "project").state(name)
    state.begin(pipeline, starting="earliest", now_ms=1)

    def replayed() -> Edition:
        return state.make_edition(pipeline, starting="earliest", now_ms=2, replayed=True)

    first = replayed()
    assert f"{name}.out.v1.2" in prepare_topics(pipeline, state, first, Bootstrap(broker.bootstrap))
    prepare_topics(pipeline, state, first, Bootstrap(broker.bootstrap))  # repeated, as after an interruption
    put(f"{name}.out.v1.2", numbered(0, 3))
    prepare_topics(pipeline, state, state.note_query(first, "a query"), Bootstrap(broker.bootstrap))
    # The run was killed after the query began and before the edition had its id: it goes on from the query's position.
    state.checkpoint(first.name).mkdir()
    (state.checkpoint(first.name) / "metadata").write_text('{"id": "a query"}')
    prepare_topics(pipeline, state, first, Bootstrap(broker.bootstrap))
    state.forget(first.name)
    again = replayed()
    assert again.name == first.name
    with pytest.raises(WrongState, match=rf"its topic {name}\.out\.v1\.2 has records already") as refused:
        prepare_topics(pipeline, state, again, Bootstrap(broker.bootstrap))
    assert f"cordwood topic delete {name}.out.v1.2" in refused.value.hint
    assert f"{name}.out.v1.3" in prepare_topics(pipeline, state, replayed(), Bootstrap(broker.bootstrap))


WRITES = """
from cordwood.pipelines import *
from confluent_kafka.admin import AdminClient
from pathlib import Path

@pipeline("{name}", version=1, inputs=topic("{topic}", value=json("id string, amount int")),
          quarantine=budget(rows=1), outputs=topic("{name}.out", key="id"))
def passed_on(orders):
    marker = Path("{marker}")
    if marker.exists():
        # The moment between the look at the outputs and the write to them.
        admin, deleted = AdminClient({{"bootstrap.servers": "{bootstrap}"}}), marker.read_text()
        admin.delete_topics([deleted], operation_timeout=60)[deleted].result(60)
        marker.unlink()
    return orders
"""


@pytest.mark.parametrize("which", ["out", "quarantine"])
def test_a_topic_that_is_deleted_within_a_batch_is_not_made_again_by_the_write(
    broker: RunningBroker,
    admin: AdminClient,
    make_topic: MakeTopic,
    put: Produce,
    spark: SparkSession,
    tmp_path: Path,
    which: str,
) -> None:
    topic, marker = make_topic(), tmp_path / "marker"
    name = f"p-{topic[-6:]}"
    deleted = f"{name}.{which}"
    workshop = Workshop(tmp_path, spark, broker.bootstrap)
    facts = {"name": name, "topic": topic, "marker": marker, "bootstrap": broker.bootstrap}
    workshop.file.write_text(WRITES.format(**facts))
    put(topic, orders([1]))
    workshop.run()
    assert deleted in existing_topics(Bootstrap(broker.bootstrap))

    marker.write_text(deleted)
    put(topic, [*orders([2]), Record(b"{nonsense")])
    with pytest.raises(Exception, match=f"Topic '{deleted}' does not exist"):
        workshop.run()
    assert not marker.exists()
    assert deleted not in existing_topics(Bootstrap(broker.bootstrap)), (
        "the broker creates topics that a producer asks for"
    )
    if which == "out":
        with pytest.raises(WrongState, match=rf"the topic {deleted} of edition v1 was deleted"):
            workshop.run()
        assert deleted not in existing_topics(Bootstrap(broker.bootstrap))
    else:
        (event,) = workshop.run()
        assert event["quarantined"] == 1
        assert setting(admin, deleted, "retention.ms") == "-1", "made by the run, with the settings of a quarantine"


def test_what_was_to_be_sent_from_a_quarantine_that_was_deleted_holds_nobody_up(
    broker: RunningBroker, tmp_path: Path
) -> None:
    name = f"p-{uuid.uuid4().hex[:6]}"
    (tmp_path / "passed_on.py").write_text(FILE.format(name=name))
    pipeline = load_pipeline(tmp_path / "passed_on.py")
    state = Project(tmp_path / "project").state(name)
    edition = state.note_query(state.begin(pipeline, starting="earliest", now_ms=1), "a query")
    write_plan(state, "v1", RequeuePlan(4, OffsetSet(), OffsetSet({0: ((0, 1),)}), "gone"))
    no_spark: Any = None
    assert Requeue(no_spark, pipeline, state, edition, Bootstrap(broker.bootstrap)).run(superseded=False).sent == 0
    assert read_plan(state, "v1") == RequeuePlan(4)

"""The metrics of pipelines: counted from events, asked of a real broker, and scraped over HTTP."""

import json
import math
import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadline import eventually

from cordwood.client.bootstrap import Bootstrap
from cordwood.embedded import Broker
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.monitoring import PipelineMonitor, WrongAddress

NOWHERE = Bootstrap("127.0.0.1:1")
"""An address at which no broker listens."""
V1: dict[str, Any] = {"pipeline": "orders", "edition": "v1", "version": 1}
BATCH: dict[str, Any] = {
    **V1,
    "event": "batch",
    "batch": 0,
    "at_ms": 1_700_000_000_000,
    "too_late": 3,
    "rows_in": 10,
    "rows_out": {"priced": 7, "totals": 3},
    "quarantined": 2,
    "rules": {"amount >= 0": {"quarantined": 2, "dropped": 1}},
    "lag": 5,
    "duration_ms": 400,
}


def scraped(monitor: PipelineMonitor) -> dict[str, float]:
    with urllib.request.urlopen(monitor.url, timeout=30) as answer:
        text = answer.read().decode()
    lines = [re.fullmatch(r"(\S+(?:\{.*\})?) (\S+)", line) for line in text.splitlines() if line[:1] != "#"]
    return {line[1]: float(line[2]) for line in lines if line is not None}


def of(name: str, labels: str = "") -> str:
    return f'cordwood_pipeline_{name}{{edition="v1",pipeline="orders"{labels}}}'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "pipelines")


@pytest.fixture
def monitor(project: Project) -> Iterator[PipelineMonitor]:
    with PipelineMonitor(project, NOWHERE, "127.0.0.1:0", look_every_s=0.05) as made:
        yield made


def test_batches_are_counted_by_pipeline_and_edition(monitor: PipelineMonitor) -> None:
    monitor.heard({**V1, "event": "started", "replaying": False})
    for _ in range(2):
        monitor.heard(BATCH)
    monitor.heard({**BATCH, "pipeline": "clicks", "rows_in": None, "rules": None})
    found = scraped(monitor)
    assert found[of("running", ',version="1"')] == 1
    assert found[of("rows_in_total")] == 20
    assert found['cordwood_pipeline_rows_out_total{edition="v1",output="priced",pipeline="orders"}'] == 14
    assert found[of("quarantined_total")] == 4
    assert found[of("rows_too_late_total")] == 6
    assert found[of("batches_total")] == found[of("batch_duration_seconds_count")] == 2
    assert found[of("last_batch_duration_seconds")] == 0.4
    assert found[of("last_batch_timestamp_seconds")] == 1_700_000_000
    assert found['cordwood_pipeline_batches_total{edition="v1",pipeline="clicks"}'] == 1
    by_rule = {name: value for name, value in found.items() if "expectation_rows" in name and "orders" in name}
    assert sorted(by_rule.values()) == [2, 4]


def test_a_failure_stands_until_the_next_batch(monitor: PipelineMonitor) -> None:
    failure = {"pipeline": "orders", "edition": "v1", "event": "failed", "code": "FAILED", "message": "", "hint": ""}
    monitor.heard({**V1, "event": "started"})
    monitor.heard({**failure, "again_in_s": 1.0})
    monitor.heard(failure)
    found = scraped(monitor)
    assert (found[of("failed")], found[of("failures_total")], found[of("restarts_total")]) == (1, 2, 1)
    assert found[of("running", ',version="1"')] == 0
    monitor.heard(BATCH)
    found = scraped(monitor)
    assert (found[of("failed")], found[of("failures_total")]) == (0, 2)
    monitor.heard({**V1, "event": "ended", "reason": "stopped"})
    assert scraped(monitor)[of("running", ',version="1"')] == 0


def test_brokers_that_do_not_answer_hold_up_no_scrape(monitor: PipelineMonitor, project: Project) -> None:
    finished_batch(project, {"orders": {"0": 3}})
    monitor.heard(BATCH)
    watched = eventually(lambda: scraped(monitor).get(of("inputs_watched")), to_be=0, what="a look without brokers")
    assert watched == 0
    assert not [name for name in scraped(monitor) if "lag_records" in name]


def test_the_lag_of_an_edition_that_another_has_replaced_is_not_shown(
    monitor: PipelineMonitor, project: Project
) -> None:
    for edition in ("v1", "v2"):
        finished_batch(project, {"orders": {"0": 3}}, edition=edition)
    monitor.heard(BATCH)
    eventually(lambda: of("inputs_watched") in scraped(monitor), what="a look at the first edition")
    monitor.heard({**V1, "edition": "v2", "event": "started"})
    eventually(lambda: of("inputs_watched").replace("v1", "v2") in scraped(monitor), what="a look at the second one")
    assert of("inputs_watched") not in scraped(monitor)


def finished_batch(
    project: Project, position: dict[str, dict[str, int]], batch: int = 0, *, edition: str = "v1"
) -> None:
    """Writes the checkpoint that Spark leaves after a batch."""
    checkpoint = project.state("orders").checkpoint(edition)
    for folder, lines in (("offsets", ["v1", "{}", json.dumps(position)]), ("commits", ["v1", "{}"])):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        (checkpoint / folder / str(batch)).write_text("\n".join(lines))


def of_input(monitor: PipelineMonitor, name: str, topic: str = "orders") -> float | None:
    line = f'cordwood_pipeline_{name}{{edition="v1",partition="0",pipeline="orders",topic="{topic}"}}'
    return scraped(monitor).get(line)


def test_lag_and_time_to_data_loss_are_those_of_now(project: Project) -> None:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [
            NewTopic("orders", 1, config={"retention.ms": "600000"}),
            NewTopic("kept", 1, config={"retention.ms": "-1"}),
        ]
        for made in admin.create_topics(topics).values():
            made.result(60)
        for topic in ("orders", "kept"):
            broker.log.append_many(topic, [(None, str(number)) for number in range(10)])
        finished_batch(project, {"orders": {"0": 4}, "kept": {"0": 10}})
        with PipelineMonitor(project, Bootstrap(broker.bootstrap_servers), "127.0.0.1:0", look_every_s=0.05) as monitor:
            monitor.heard({**V1, "event": "started"})
            eventually(lambda: of_input(monitor, "lag_records"), to_be=6, what="the lag")
            to_loss_s = of_input(monitor, "time_to_data_loss_seconds")
            assert to_loss_s is not None
            assert 0 < to_loss_s <= 600
            assert of_input(monitor, "time_to_data_loss_seconds", "kept") == math.inf
            assert (of_input(monitor, "lag_records", "kept"), of_input(monitor, "lag_seconds", "kept")) == (0, 0)
            for gone in admin.delete_records([TopicPartition("orders", 0, 7)]).values():
                gone.result(60)
            eventually(lambda: of_input(monitor, "lost_records"), to_be=3, what="records that are gone")
            assert of_input(monitor, "lag_records") == 3
            finished_batch(project, {"orders": {"0": 10}}, batch=1)
            eventually(lambda: of_input(monitor, "lag_records"), to_be=0, what="the lag after a batch")
            broker.stop()
            eventually(lambda: scraped(monitor)[of("inputs_watched")], to_be=0, what="brokers that are away")
            assert of_input(monitor, "lag_records") is None


@pytest.mark.parametrize("address", ["", "9405", "localhost:", "localhost:http", "localhost:70000"])
def test_an_address_that_is_none_is_refused(project: Project, address: str) -> None:
    with pytest.raises(WrongAddress, match="no address of the form HOST:PORT"):
        PipelineMonitor(project, NOWHERE, address)


def test_an_address_that_is_taken_is_refused(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(WrongAddress, match=f"no metrics at {address}"), PipelineMonitor(project, NOWHERE, address):
            pass

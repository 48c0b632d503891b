"""Metrics of a real pipeline, and the alarms that it fires in trouble: promtool judges its endpoint by the rules."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadline import eventually
from tests.deploy import playing
from tests.deploy.playing import Scrape, check, total
from tests.deploy.prometheus import promtool

from cordwood.embedded import Broker

WITHIN_S = 600
"""A worker that starts Java on a busy machine."""
QUARANTINE = ("CordwoodPipelineQuarantineGrows",)
STANDING_STILL = (
    "CordwoodPipelineFailed",
    "CordwoodPipelineLagGrows",
    "CordwoodPipelineAboutToLoseRecords",
    "CordwoodPipelineLostRecords",
)
BROKERS_AWAY = ("CordwoodPipelineInputsUnknown",)
PROCESS_AWAY = ("CordwoodNotScraped",)
ALL = {*QUARANTINE, *STANDING_STILL, *BROKERS_AWAY, *PROCESS_AWAY}


class Stage:
    """The pipeline `copied`, run by its command, on a broker in this process. Its function fails while `broken` is
    there."""

    def __init__(self, directory: Path, broker: Broker) -> None:
        self.directory = directory
        self.broker = broker
        self.broken = directory / "broken"
        self.address = ""
        self.file = directory / "copied.py"
        self.file.write_text(
            dedent(
                f"""
                import os
                from cordwood.pipelines import *

                @pipeline(version=1, trigger="100 milliseconds", quarantine=budget(rows=100),
                          inputs=topic("orders", value=json("n int not null")), outputs=topic("copies", key="n"),
                          spark={{"spark.master": "local[1]", "spark.ui.enabled": "false"}})
                def copied(orders):
                    if os.path.exists({str(self.broken)!r}):
                        raise RuntimeError("the lookup service does not answer")
                    return orders
                """
            )
        )

    def write(self, numbers: range) -> None:
        self.broker.log.append_many("orders", [(None, json.dumps({"n": number})) for number in numbers])

    @contextmanager
    def running(self) -> Iterator[None]:
        said = self.directory / "said"
        command = [sys.executable, "-m", "cordwood.cli", "pipeline", "run", str(self.file), "--max-restarts", "1000"]
        with open(said, "wb") as out:
            process = subprocess.Popen(
                [*command, "--metrics", "127.0.0.1:0"],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, "CORDWOOD_BOOTSTRAP": self.broker.bootstrap_servers, "SPARK_LOCAL_IP": "127.0.0.1"},
            )
        try:
            (self.address,) = eventually(lambda: re.findall(r"http://(\S+)/metrics", said.read_text()), what="metrics")
            yield
            process.terminate()
            assert process.wait(WITHIN_S) == 0, said.read_text()[-4000:]
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def scraped(self) -> Scrape:
        return playing.scrape({'job="cordwood-pipelines",instance="spark-1"': self.address})

    def wait_for(self, name: str, value: float) -> Scrape:
        metric = f"cordwood_pipeline_{name}"
        eventually(lambda: total(self.scraped(), metric), to_be=value, within_s=WITHIN_S, what=f"{metric} {value}")
        return self.scraped()


def values_of(found: Scrape) -> dict[str, float]:
    """The values of the pipeline by the name of the metric, without its prefix, and by labels beyond the edition's."""
    values = {}
    for series, value in found.values.items():
        name, labels = series.removesuffix("}").split("{")
        more = re.sub(r'(?:job|instance|edition|pipeline)="[^"]*",?', "", labels).rstrip(",")
        values[name.removeprefix("cordwood_pipeline_") + (f"{{{more}}}" if more else "")] = value
    return values


def test_a_pipeline_in_trouble_fires_its_alarms_and_one_in_order_does_not(tmp_path: Path) -> None:
    promtool("--version")
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        config = {"retention.ms": "600000", "segment.ms": "600000"}
        admin.create_topics([NewTopic("orders", 1, config=config)])["orders"].result(60)
        stage = Stage(tmp_path, broker)
        stage.write(range(10))
        with stage.running():
            stage.wait_for("rows_in_total", 10)
            stage.wait_for("inputs_watched", 1)
            in_order = stage.wait_for("lag_records", 0)
            found = values_of(in_order)
            assert found['rows_out_total{output="copies"}'] == 10
            assert found["batches_total"] == found["batch_duration_seconds_count"] == 1
            assert found["batch_duration_seconds_sum"] == found["last_batch_duration_seconds"] > 0
            assert (found["quarantined_total"], found["failed"], found["restarts_total"]) == (0, 0, 0)
            assert (found['running{version="1"}'], found["inputs_watched"]) == (1, 1)
            check(tmp_path, (in_order, stage.scraped()), (), ALL)

            broker.log.append("orders", None, b"poison")
            stage.wait_for("quarantined_total", 1)
            check(tmp_path, (in_order, stage.scraped()), QUARANTINE, ALL.difference(QUARANTINE))

            stage.broken.touch()
            stage.write(range(10, 20))
            stage.wait_for("failed", 1)
            before = stage.wait_for("lag_records", 10)
            stage.write(range(20, 3_000))
            stage.wait_for("lag_records", 2_990)
            for gone in admin.delete_records([TopicPartition("orders", 0, 16)]).values():
                gone.result(60)
            stage.wait_for("lost_records", 5)
            eventually(
                lambda: values_of(stage.scraped())["restarts_total"] >= 1, within_s=WITHIN_S, what="a second try"
            )
            to_loss = 'time_to_data_loss_seconds{partition="0",topic="orders"}'
            # Infinite for a minute: until then the pipeline has read faster than the topic grows.
            eventually(
                lambda: values_of(stage.scraped())[to_loss] < 3_600, within_s=WITHIN_S, what="a time to data loss"
            )
            check(tmp_path, (before, stage.scraped()), STANDING_STILL, ALL.difference(STANDING_STILL))

            broker.stop()
            away = stage.wait_for("inputs_watched", 0)
            check(tmp_path, (away, stage.scraped()), BROKERS_AWAY, {*QUARANTINE, *PROCESS_AWAY})
            broker.start()
        gone_too = stage.scraped()
        check(tmp_path, (gone_too, stage.scraped()), PROCESS_AWAY, ALL.difference(PROCESS_AWAY))

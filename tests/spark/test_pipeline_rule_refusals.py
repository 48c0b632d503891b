"""A rule that cannot be asked is refused by the commands before an edition or a topic is made."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce
from tests.spark.pipeline_workshop import orders

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.execution.topics import existing_topics

FILE = """
from cordwood.pipelines import *

@pipeline("{name}", version={version}, spark={{"spark.master": "local[2]", "spark.ui.enabled": "false"}}, {settings}
          inputs=topic("{topic}", value=json("id string, amount int")),
          outputs={outputs})
def judged(orders):
    return {returned}
"""
OUTPUT = """topic("{name}.out", key="id", expect=expect("{condition}", else_="drop"))"""
STATEFUL: dict[str, Any] = {
    "settings": "stateful=True, output_mode='update',",
    "returned": "orders.groupBy('id').count().selectExpr('id', 'count as amount')",
}


class Job:
    """One pipeline in a directory of its own, with the commands of a person."""

    def __init__(self, directory: Path, broker: RunningBroker, topic: str) -> None:
        self.name = f"p-{topic[-6:]}"
        self.file = directory / "files" / "judged.py"
        self.file.parent.mkdir()
        self.state = directory / "state"
        self._topic = topic
        self._bootstrap = broker.bootstrap

    def write(
        self,
        condition: str,
        *,
        version: int = 1,
        settings: str = "",
        outputs: str = OUTPUT,
        returned: str = "orders",
    ) -> None:
        self.file.write_text(
            FILE.format(
                name=self.name,
                version=version,
                topic=self._topic,
                outputs=outputs.format(name=self.name, condition=condition),
                settings=settings,
                returned=returned,
            )
        )

    def command(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "cordwood.cli", "pipeline", *map(str, arguments), "-d", str(self.state)]
        environment = {**os.environ, "CORDWOOD_BOOTSTRAP": self._bootstrap, "SPARK_LOCAL_IP": "127.0.0.1"}
        return subprocess.run(command, env=environment, cwd=self.file.parent, capture_output=True, text=True)

    def error(self, *arguments: object) -> dict[str, Any]:
        done = self.command(*arguments, "--json")
        assert done.returncode == 1, done.stderr
        found: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])["error"]
        return found

    @property
    def made(self) -> tuple[set[str], list[str]]:
        """The topics and the editions that there are."""
        topics = {topic for topic in existing_topics(Bootstrap(self._bootstrap)) if topic.startswith(self.name)}
        return topics, sorted(path.name for path in self.state.glob(f"{self.name}/editions/*"))


@pytest.fixture
def job(tmp_path: Path, broker: RunningBroker, make_topic: MakeTopic, put: Produce) -> Job:
    topic = make_topic()
    put(topic, orders([1, 2]))
    return Job(tmp_path, broker, topic)


def test_a_wrong_rule_makes_neither_an_edition_nor_a_topic(job: Job) -> None:
    job.write("amont >= 0")
    said = job.error("run", job.file, "--once")
    assert said["code"] == "INVALID_DEFINITION"
    assert said["message"].startswith("judged.py:6: ") or said["message"].startswith(f"{job.file}:6: ")
    assert "the expectation 'amont >= 0' names amont, which is no column there" in said["message"]
    assert said["hint"] == "there are id, amount"
    assert job.made == (set(), [])
    assert json.loads(job.command("list", "--json").stdout) == []

    job.write("amount >=", **STATEFUL)
    assert "is no SQL condition" in job.error("run", job.file, "--once")["message"]
    assert job.made == (set(), [])

    job.write("amont >= 0")
    served = job.command("serve", job.file.parent, "--once")
    assert served.returncode == 1
    assert "names amont, which is no column there" in served.stderr
    assert job.made == (set(), [])


def test_a_wrong_rule_of_a_replay_leaves_the_live_edition_alone(job: Job) -> None:
    job.write("amount >= 0")
    done = job.command("run", job.file, "--once")
    assert done.returncode == 0, done.stderr
    made = ({f"{job.name}.out", f"{job.name}.quarantine"}, ["v1"])
    assert job.made == made
    job.write("amont >= 0", version=2)
    for option in ((), ("--downstream",)):
        said = job.error("replay", job.file, *option)
        assert "names amont, which is no column there" in said["message"]
        assert job.made == made


def test_a_wrong_rule_of_a_changed_file_makes_no_topic(job: Job) -> None:
    job.write("amount >= 0", outputs=f"{{{{'out': {OUTPUT}}}}}", returned="{'out': orders}")
    done = job.command("run", job.file, "--once")
    assert done.returncode == 0, done.stderr
    made = job.made

    more = f"{{{{'out': {OUTPUT}, 'more': topic('{{name}}.more', key='id')}}}}"
    job.write("amont >= 0", outputs=more, returned="{'out': orders, 'more': orders}")
    assert "names amont, which is no column there" in job.error("run", job.file, "--once")["message"]
    assert job.made == made
    served = job.command("serve", job.file.parent, "--once")
    assert served.returncode == 1
    assert "names amont, which is no column there" in served.stderr
    assert job.made == made

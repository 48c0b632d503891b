"""Reads in other processes: a standalone cluster of one master and two workers, and Spark Connect."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce, numbered
from tests.spark.standalone import environment, standalone_cluster

STORY = Path(__file__).with_name("remote_story.py")
WITHIN_S = 600


def tell(kind: str, address: str, broker: RunningBroker, topic: str, directory: Path) -> dict[str, Any]:
    """The result of the story."""
    ran = subprocess.run(
        [sys.executable, str(STORY), kind, address, broker.bootstrap, topic, str(directory)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-8000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def expect(found: dict[str, Any]) -> None:
    assert found["sum"] == sum(range(2000))
    assert found["filtered"] == 10
    assert found["tasks"] == 4
    assert found["streamed"] == 2000
    assert found["progress"] == 2000
    assert "Did you mean startingOffsets" in found["error"]


def test_spark_connect(broker: RunningBroker, put: Produce, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(2)
    put(topic, [*numbered(0, 1000), *numbered(1000, 2000, partition=1)])
    found = tell("connect", "local[2]", broker, topic, tmp_path)
    assert found["connect"]
    expect(found)


def test_a_standalone_cluster(broker: RunningBroker, put: Produce, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(2)
    put(topic, [*numbered(0, 1000), *numbered(1000, 2000, partition=1)])
    with standalone_cluster(tmp_path) as cluster:
        found = tell("classic", cluster.master, broker, topic, tmp_path)
    assert not found["connect"]
    expect(found)

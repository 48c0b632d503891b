"""Not in this process: a standalone cluster of one master and two workers, and Spark Connect."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
from tests.broker_process import free_port
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Produce, numbered

from cordwood.spark.java import ensure_java

STORY = Path(__file__).with_name("remote_story.py")
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
WITHIN_S = 600


def tell(kind: str, address: str, broker: RunningBroker, topic: str, directory: Path) -> dict[str, Any]:
    """What the story found out."""
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


def environment() -> dict[str, str]:
    changed = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_TESTING": "1",  # a free port for Spark Connect instead of 15002
        "SPARK_NO_DAEMONIZE": "1",
    }
    ensure_java(changed)
    return changed


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
    with standalone_cluster(tmp_path) as master:
        found = tell("classic", master, broker, topic, tmp_path)
    assert not found["connect"]
    expect(found)


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """One master and two workers with one core each, from the classes in the pip package. Ended by their pids."""
    port, web = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:

        def start(name: str, *arguments: str) -> Path:
            output = directory / f"{name}.out"
            with output.open("wb") as out:
                process = subprocess.Popen(
                    [str(SPARK_CLASS), *arguments],
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            running.callback(_end, process)
            return output

        master = start(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)),
        )
        for index in range(2):
            work = directory / f"work-{index}"
            start(
                f"worker-{index}",
                "org.apache.spark.deploy.worker.Worker",
                *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(work)),
                *("--webui-port", str(free_port()), address),
            )
        eventually(lambda: master.read_text(errors="replace").count("Registering worker") == 2, 300, what="two workers")
        yield address


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)

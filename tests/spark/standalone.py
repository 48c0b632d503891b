"""A standalone cluster of Spark on this machine, from the classes in the pip package: one master, two workers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark
from tests.broker_process import free_port
from tests.deadline import eventually

from cordwood.spark.java import ensure_java

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


class Cluster(NamedTuple):
    master: str
    workers: tuple[int, ...]
    """Process ids of the workers. Each leads a session that includes its executors."""


def environment(host: str = "127.0.0.1", hostname: str = "localhost") -> dict[str, str]:
    changed = {
        **os.environ,
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_HOSTNAME": hostname,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_TESTING": "1",  # a free port for Spark Connect instead of 15002
        "SPARK_NO_DAEMONIZE": "1",
    }
    ensure_java(changed)
    return changed


@contextmanager
def standalone_cluster(directory: Path, hosts: tuple[str, str] = ("127.0.0.1", "127.0.0.1")) -> Iterator[Cluster]:
    """Workers with one core each, on these addresses of the loopback, which are ended by their pids."""
    port, web = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:

        def start(name: str, host: str, *arguments: str) -> int:
            with (directory / f"{name}.out").open("wb") as out:
                process = subprocess.Popen(
                    [str(SPARK_CLASS), *arguments],
                    env=environment(host, "localhost" if host == "127.0.0.1" else host),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            running.callback(_end, process)
            return process.pid

        start(
            "master",
            "127.0.0.1",
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)),
        )
        workers = tuple(
            start(
                f"worker-{index}",
                host,
                "org.apache.spark.deploy.worker.Worker",
                *("--host", host, "--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{index}")),
                *("--webui-port", str(free_port()), address),
            )
            for index, host in enumerate(hosts)
        )
        master = directory / "master.out"
        eventually(
            lambda: master.read_text(errors="replace").count("Registering worker"),
            to_be=2,
            within_s=300,
            what="two workers",
        )
        yield Cluster(address, workers)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)

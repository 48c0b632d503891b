"""The objects that the demo's chapters share: the broker, the shop, the readers; and waiting with a limit."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from cordwood.cli.demo.broker_process import BrokerProcess
from cordwood.cli.demo.cluster_process import ClusterProcess
from cordwood.cli.demo.orders import PARTITIONS, TOPIC, Shop
from cordwood.cli.demo.spark_commands import Ended, SparkCommands
from cordwood.cli.demo.stage import Stage

PATIENCE_S = 30.0


@dataclass(slots=True)
class Scene:
    """The objects that the chapters share."""

    stage: Stage
    broker: BrokerProcess
    directory: str
    shop: Shop | None = None
    readers: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    playing: frozenset[str] = frozenset()
    """The names of all chapters that are played."""
    commands: SparkCommands | None = None
    audit: "Future[Ended] | None" = None
    """The audit, once it has begun: it runs beside other chapters."""
    cluster: ClusterProcess | None = None

    def close(self) -> None:
        """Ends every process of the demo that still runs."""
        for reader in self.readers:
            if reader.poll() is None:
                reader.kill()
                reader.wait()
        if self.commands is not None:
            self.commands.close()
        if self.cluster is not None:
            self.cluster.close()
        self.broker.close()

    def file_of(self, reader: str) -> str:
        return os.path.join(self.directory, f"{reader}.tsv")

    def start_reader(self, name: str, *, pause_ms: int = 0, limit: int | None = None) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "cordwood.cli.demo.reader", self.broker.bootstrap_servers, name, TOPIC]
        command += [str(PARTITIONS), self.file_of(name), "--pause-ms", str(pause_ms)]
        if limit is not None:
            command += ["--limit", str(limit)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.readers.append(process)
        return process


class TookTooLong(Exception):
    """The event that the message names did not happen within the demo's patience."""


def wait(happened: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not happened():
        if time.monotonic() > deadline:
            raise TookTooLong(what)
        time.sleep(0.02)

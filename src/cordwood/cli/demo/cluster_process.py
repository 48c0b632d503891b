"""The demo's cluster: a real `cordwood cluster up` in a separate process, whose brokers are killed by their pids."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from cordwood.cli.demo.broker_process import BrokerFailed

NODES = 3
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0


class ClusterProcess:
    """Three brokers and the process that supervises them, in one directory. Callers always `close`."""

    def __init__(self, data_directory: str, log_path: str) -> None:
        self._data_directory = data_directory
        self._log_path = log_path
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._killed: set[int] = set()
        self.bootstrap_servers = ""
        self.pids: dict[int, int] = {}
        """The process of each broker, by node id."""

    def start(self) -> float:
        """Starts the cluster. Returns the seconds until all brokers served."""
        assert self._supervisor is None
        command = [sys.executable, "-m", "cordwood.cli", "cluster", "up", "--nodes", str(NODES), "--json"]
        command += ["--data-dir", self._data_directory, "--base-port", "0"]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("CORDWOOD_")}
        began = time.monotonic()
        with open(self._log_path, "wb") as log:
            self._supervisor = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        told = self._ready_line()
        self.bootstrap_servers = told["bootstrap_servers"]
        self.pids = {node["id"]: node["pid"] for node in told["nodes"]}
        return time.monotonic() - began

    def _ready_line(self) -> dict[str, Any]:
        assert self._supervisor is not None
        assert self._supervisor.stdout is not None
        readable, _, _ = select.select([self._supervisor.stdout], [], [], _START_TIMEOUT_S)
        line = self._supervisor.stdout.readline() if readable else b""
        if not line:
            raise BrokerFailed("the cluster did not start:\n" + "\n".join(self.said()))
        told: dict[str, Any] = json.loads(line)
        return told

    def said(self) -> list[str]:
        """The supervisor's output for people."""
        with open(self._log_path) as log:
            return log.read()[-2000:].splitlines()

    def kill(self, node_id: int) -> None:
        """Kills one broker with kill -9: it flushes nothing, and says goodbye to nobody."""
        os.kill(self.pids[node_id], signal.SIGKILL)
        self._killed.add(node_id)

    @property
    def supervisor_pid(self) -> int:
        assert self._supervisor is not None
        return self._supervisor.pid

    @property
    def survivors(self) -> str:
        """The addresses of the brokers that were not killed."""
        servers = self.bootstrap_servers.split(",")
        return ",".join(server for node_id, server in enumerate(servers, 1) if node_id not in self._killed)

    def stop(self) -> None:
        """Stops the supervisor with SIGTERM: it stops the brokers and ends after them."""
        assert self._supervisor is not None
        self._supervisor.terminate()
        code = self._supervisor.wait(timeout=_STOP_TIMEOUT_S)
        if code != 0:
            raise BrokerFailed(f"the cluster stopped with {code}:\n" + "\n".join(self.said()))

    @property
    def running(self) -> list[int]:
        """The pids of all processes of the cluster that still run."""
        own = [self._supervisor.pid] if self._supervisor is not None and self._supervisor.poll() is None else []
        return [*own, *filter(_runs, self.pids.values())]

    def close(self) -> None:
        """Ends all processes of the cluster that still run."""
        supervisor = self._supervisor
        if supervisor is None:
            return
        if supervisor.poll() is None:
            supervisor.terminate()
            try:
                supervisor.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                supervisor.kill()
                supervisor.wait()
        for pid in filter(_runs, self.pids.values()):
            os.kill(pid, signal.SIGKILL)
        assert supervisor.stdout is not None
        supervisor.stdout.close()


def _runs(pid: int) -> bool:
    """True if the process runs and is a broker of `cordwood`: another process may have got the number."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"cordwood" in file.read()
    except OSError:
        return False

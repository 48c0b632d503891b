"""`cordwood cluster up` as a process of its own: started, stopped, killed; its brokers killed and restarted."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import pausing
from tests.deadline import eventually

START_WITHIN_S = 90.0
STOP_WITHIN_S = 60.0
CORDWOOD = (sys.executable, "-m", "cordwood.cli")


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")}


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that is dead and not reaped yet does not. The last of its threads to end lets go of
    its files and locks: the first one may be dead long before."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


class LocalCluster:
    """A cluster of a test. Promises that its processes are gone when the test is over."""

    def __init__(
        self, directory: Path, *options: str, nodes: int = 3, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment` is added to that of the processes."""
        self.directory = directory
        self._environment = {**clean_environment(), **(environment or {})}
        self._options = options
        self._nodes = nodes
        self._process: subprocess.Popen[str] | None = None
        self._restarted: list[subprocess.Popen[bytes]] = []
        self._said: list[str] = []
        self._listener: threading.Thread | None = None
        self.bootstrap = ""
        self.pids: dict[int, int] = {}

    @property
    def command(self) -> Sequence[str]:
        options = ("--nodes", str(self._nodes), "--data-dir", str(self.directory), "--base-port", "0", "--json")
        return (*CORDWOOD, "cluster", "up", *options, *self._options)

    def __enter__(self) -> Self:
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Starts the supervisor, and does not wait for it."""
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_ready(self) -> None:
        """Waits until the cluster serves; ends it if it does not."""
        process = self.supervisor
        assert process.stdout is not None
        given_up = threading.Timer(START_WITHIN_S, process.terminate)
        given_up.start()
        line = process.stdout.readline()
        given_up.cancel()
        if not line:
            self.end()
            raise AssertionError(f"the cluster did not start; it said:\n{self.said}\n{self.logs()}")
        told: dict[str, Any] = json.loads(line)
        self.bootstrap = told["bootstrap_servers"]
        self.pids = {node["id"]: node["pid"] for node in told["nodes"]}

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)

    @property
    def said(self) -> str:
        """What the supervisor said for people."""
        return "".join(self._said)

    @property
    def supervisor(self) -> "subprocess.Popen[str]":
        assert self._process is not None
        return self._process

    def logs(self) -> str:
        """The ends of what brokers and members of etcd said."""
        return "\n".join(f"{path}:\n{path.read_text()[-3000:]}" for path in sorted(self.directory.glob("*.log")))

    def log_of(self, node_id: int) -> str:
        """What the broker has said so far, in all of its lives."""
        return (self.directory / f"node-{node_id}.log").read_text()

    def port(self, node_id: int) -> int:
        return int(self.bootstrap.split(",")[node_id - 1].rpartition(":")[2])

    def kill(self, node_id: int) -> None:
        """kill -9 of one broker."""
        os.kill(self.pids[node_id], signal.SIGKILL)
        eventually(lambda: not is_alive(self.pids[node_id]), what=f"the end of broker {node_id}")

    def terminate(self, node_id: int) -> None:
        """SIGTERM of one broker, which hands its leaderships over and ends."""
        os.kill(self.pids[node_id], signal.SIGTERM)
        eventually(lambda: not is_alive(self.pids[node_id]), what=f"the end of broker {node_id}")

    def freeze(self, node_id: int) -> None:
        """SIGSTOP of one broker."""
        pausing.pause(self.pids[node_id])

    def thaw(self, node_id: int) -> None:
        pausing.resume(self.pids[node_id])

    def restart(self, node_id: int, *options: str, environment: Mapping[str, str] | None = None) -> None:
        """Starts a broker again, by the command that the supervisor named when the broker first ended, with more
        options. `environment` is added to that of the process."""
        named = f"broker {node_id} (pid "
        eventually(lambda: named in self.said, what=f"the report of broker {node_id}")
        line = next(line for line in self.said.splitlines() if named in line)
        command = shlex.split(line.partition("to do so: cordwood ")[2])
        with (self.directory / f"node-{node_id}.log").open("ab") as output:
            process = subprocess.Popen(
                [*CORDWOOD, *command, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**clean_environment(), **(environment or {})},
                start_new_session=True,
            )
        self._restarted.append(process)
        self.pids[node_id] = process.pid

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tells the supervisor to stop; its exit code."""
        process = self.supervisor
        process.send_signal(number)
        return process.wait(STOP_WITHIN_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if error is not None:
            print(f"the supervisor said:\n{self.said}\n{self.logs()}")

    def end(self) -> None:
        """Ends all processes, by force if need be."""
        for restarted in self._restarted:
            restarted.send_signal(signal.SIGCONT)
            restarted.terminate()
            try:
                restarted.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                restarted.kill()
                restarted.wait()
        process = self.supervisor
        process.terminate()
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            # The brokers end with their supervisor.
            process.kill()
            process.wait()
        assert self._listener is not None
        self._listener.join()

"""The demo's broker: a real `cordwood serve` in a separate process, so that it can really be killed."""

import os
import re
import signal
import subprocess
import sys
import time
from typing import IO

_READY = re.compile(r"ready on (\S+):(\d+)")
_START_TIMEOUT_S = 30.0


class BrokerFailed(Exception):
    """The broker did not start or did not stop; the message has its output."""


class BrokerProcess:
    """One data directory, one address, and the process that serves both at the moment."""

    def __init__(self, data_directory: str, log_path: str) -> None:
        self.data_directory = data_directory
        self._log_path = log_path
        self._address = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return self._address

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Starts the broker, again on its first address. Returns the ms until clients could connect."""
        assert self._process is None
        command = [sys.executable, "-m", "cordwood.cli", "serve"]
        command += ["--data-dir", self.data_directory, "--listen", self._address]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("CORDWOOD_")}
        began = time.monotonic()
        with open(self._log_path, "a") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        assert self._process.stdout is not None
        self._address = self._wait_until_ready(self._process.stdout)
        return (time.monotonic() - began) * 1000

    def _wait_until_ready(self, output: IO[str]) -> str:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            line = output.readline()
            if not line:
                break
            if found := _READY.search(line):
                return f"{found[1]}:{found[2]}"
        raise BrokerFailed(f"the broker did not start:\n{self._said()}")

    def kill(self) -> None:
        """Kills the broker with kill -9: it flushes nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """Stops the broker with SIGTERM: it finishes, flushes and closes."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(timeout=_START_TIMEOUT_S)
        self._process = None
        if code != 0:
            raise BrokerFailed(f"the broker stopped with {code}:\n{self._said()}")

    def close(self) -> None:
        """Kills the broker if it runs."""
        if self._process is not None:
            self.kill()

    def _said(self) -> str:
        with open(self._log_path) as log:
            return log.read()[-2000:]

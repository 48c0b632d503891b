"""The real broker as a process of its own: `cordwood serve`, started, watched, stopped, killed.

Owns the process. Promises that it is gone when the test is over, and that whatever it said is in the message of a
failure to start.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.processes import rss_bytes
from tests import pausing
from tests.deadline import eventually

from cordwood.broker.supervision.local_brokers import free_ports

EXECUTABLE = Path(sys.executable).parent / "cordwood"
_READY = re.compile(r"^cordwood ready on (\S+:\d+)", re.MULTILINE)

START_WITHIN_S = 90.0
STOP_WITHIN_S = 60.0


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now, and that the kernel gives to nobody later."""
    (port,) = free_ports(1)
    return port


class BrokerProcess:
    """One broker on one data directory. Its port stays the same over restarts, so that clients come back."""

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        output: Path | None = None,
        keep_port: bool = False,
        program: Sequence[str] = (str(EXECUTABLE),),
        options: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        """`program` is the beginning of the command, `options` are further ones of `serve`."""
        self._program = program
        self._options = options
        self._host = host
        self.data_dir = data_dir
        self.settings = dict(settings or {})
        self.output_path = output or data_dir.with_name(data_dir.name + ".out")
        self._port = free_port() if keep_port else 0
        self._process: subprocess.Popen[bytes] | None = None
        self._output_start = 0
        self.bootstrap = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self, within_s: float = START_WITHIN_S) -> Self:
        """Start the process and wait for its ready line."""
        self.launch()
        self.wait_ready(within_s)
        return self

    def launch(self) -> None:
        assert self._process is None, "the broker runs already"
        command = [*self._program, "serve", "--data-dir", str(self.data_dir), *self._listen(), *self._options]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        self._output_start = self.output_path.stat().st_size if self.output_path.exists() else 0
        with self.output_path.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # The broker takes CORDWOOD_ variables for settings; those of the tests are not.
                env={name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")},
                start_new_session=True,  # an interrupt at the terminal is the test's to handle
            )

    def _listen(self) -> list[str]:
        return ["--listen", f"{self._host}:{self._port}"]

    def is_ready(self) -> bool:
        """Whether it has said so since its last start."""
        return _READY.search(self.output()) is not None

    def wait_ready(self, within_s: float = START_WITHIN_S) -> None:
        def ready() -> str | None:
            found = _READY.search(self.output())
            if found is None:
                assert self.alive, f"the broker ended with {self.exit_code}:\n{self.output()[-4000:]}"
                return None
            return found.group(1)

        try:
            self.bootstrap = eventually(ready, within_s=within_s, what="the ready line") or ""
        except AssertionError:
            said = self.output()[-4000:]
            self.end()
            raise AssertionError(f"the broker did not get ready; it said:\n{said}") from None

    def output(self) -> str:
        """What the broker said since its last start."""
        with self.output_path.open("rb") as file:
            file.seek(self._output_start)
            return file.read().decode(errors="replace")

    def says(self, text: str) -> None:
        """Waits for the text: a thread writes the lines of the log, and some come behind the ready line."""

        def said() -> str:
            output = self.output()
            return text if text in output else output[-2000:]

        eventually(said, to_be=text, what="a line of the broker")

    @property
    def address(self) -> str:
        """Where it listens, also before its first start if it keeps its port."""
        return f"{self._host}:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def rss_bytes(self) -> int:
        return rss_bytes(self.pid)

    def stop(self, within_s: float = STOP_WITHIN_S) -> int:
        """SIGTERM; the exit code of a broker that stops by itself."""
        process = self._process
        assert process is not None, "the broker is not running"
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            said = self.output()[-4000:]
            self.kill()
            raise AssertionError(f"the broker did not stop within {within_s} s of SIGTERM; it said:\n{said}") from None
        self._process = None
        return code

    def freeze(self, *, calls_too: bool = False) -> None:
        """SIGSTOP. When this returns, none of its own code runs; calls of the kernel may be under way, unless told."""
        pausing.pause(self.pid, calls_too=calls_too)

    def thaw(self) -> None:
        pausing.resume(self.pid)

    def kill(self) -> None:
        """kill -9, of this process and of nothing else."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(60)

    def end(self) -> None:
        """Whatever it takes, for the end of a test."""
        if self.alive:
            self.stop()
        else:
            self.kill()

"""The processes of a local cluster: tied to the life of their supervisor, with their output in files.

The kernel sends SIGTERM to a child when its supervisor dies, however that happens.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence

# A separate program runs between fork and exec: code in the child of a process with threads may hang.
_TIED = (
    "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,15);"
    "sys.exit(0) if os.getppid()!=int(sys.argv[1]) else os.execvp(sys.argv[2],sys.argv[2:])"
)
STOP_WITHIN_S = 30.0
_OUTPUT_SHOWN_BYTES = 2000


class Child:
    """One process, made by `launch`."""

    def __init__(self, name: str, output: str | None, process: asyncio.subprocess.Process, output_start: int) -> None:
        self.name = name
        self.output = output
        self.pid = process.pid
        self._process = process
        self._output_start = output_start

    @classmethod
    async def launch(
        cls, name: str, command: Sequence[str], output: str | None, environment: Mapping[str, str] | None = None
    ) -> "Child":
        """Starts a command; its output is appended to a file. Without a file, errors go to stderr and other output is
        dropped. Raises OSError."""
        if output is None:
            descriptor = os.dup(sys.stderr.fileno())
        else:
            descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            start = 0 if output is None else os.fstat(descriptor).st_size
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL if output is None else descriptor,
                stderr=descriptor,
                env=environment,
                # An interrupt at the terminal is the supervisor's: it stops its children in order.
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        return cls(name, output, process, start)

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> None:
        await self._process.wait()

    @property
    def exit_reason(self) -> str:
        """The end of the process, in words."""
        code = self._process.returncode
        assert code is not None, "the process runs"
        if code < 0:
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
        return f"exit code {code}"

    def last_words(self) -> str:
        """The last output of the process since it was launched; empty if that went to stderr."""
        if self.output is None:
            return ""
        with open(self.output, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._output_start, end - _OUTPUT_SHOWN_BYTES))
            return file.read().decode(errors="replace").strip()

    async def kill(self) -> None:
        if not self.ended:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL if the process does not end in time."""
        if self.ended:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

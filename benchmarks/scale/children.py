"""The processes with simulated brokers, as the run drives them."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from itertools import count
from typing import Any

from benchmarks.scale.brokers import Place


class ChildFailed(Exception):
    """A process ended, or could not do what was asked."""


class Child:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, place: Place) -> "Child":
        command = [sys.executable, "-m", "benchmarks.scale.process", json.dumps(place._asdict())]
        environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, env=environment, limit=1 << 24
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, do: str, **values: Any) -> dict[str, Any]:
        """Raises ChildFailed."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"number": number, "do": do, **values}).encode() + b"\n")
        told: dict[str, Any] = await answer
        if "error" in told:
            raise ChildFailed(f"{do}: {told['error']}")
        return told

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            told = json.loads(line)
            self._waiting.pop(told.pop("number")).set_result(told)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result({"error": "the process ended"})

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

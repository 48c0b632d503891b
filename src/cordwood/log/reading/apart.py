"""Runs Python work on records in a process of its own: a thread would hold the interpreter lock against the loop.

    apart = Apart()
    prepared = apart.call(prepare_each, tasks, left_bytes)     # in a thread: the call waits for the answer

`call(function, *arguments)` is the whole interface. The function is a module-level function (the other process finds it
by its name) without side effects, since it is called once more if the process ends before its answer. Arguments and
result are pickled: batches as bytes, and named tuples. An Exception of the function is raised here, if it pickles.

Up to PROCESSES are started, each when all others are busy. A process that was idle for IDLE_S ends by itself; all
processes die with their parent, and with the thread that started them. A process may take at most MEMORY_BYTES: beyond
that the function, and its caller, get a MemoryError.

A node has an `Apart` as `apart`. A handler uses it in work for its client's threads:

    node.effects.for_client(request.reply.connection_id, lambda: node.apart.call(prepare_each, tasks, left_bytes), done)
"""

import os
import pickle
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TypeVar, TypeVarTuple

from cordwood.model.errors import StorageFailure

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PROCESSES = 3
IDLE_S = 30.0
NICENESS = 5
"""Clients wait for this work, so it has a higher priority than compaction, and a lower one than the loop."""

MEMORY_BYTES = 1024 * 1024 * 1024
"""The address space of a process. The records of a batch are at most 128 MiB, with two copies while they are built."""

PR_SET_PDEATHSIG = 1
_LENGTH = struct.Struct(">Q")


class ProcessEnded(StorageFailure):
    """The process for records ended before it had answered."""


class _Process:
    """One process, for one call at a time."""

    def __init__(self) -> None:
        # Imported here, to keep the start of a broker quick.
        import subprocess

        self._process = subprocess.Popen(
            [sys.executable, "-m", "cordwood.log.reading.apart", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, question: bytes) -> bytes:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _send(process.stdin, question)
            return _receive(process.stdout)
        except (EOFError, BrokenPipeError) as error:
            self.close()
            raise ProcessEnded(f"the process for records ended with exit code {process.returncode}") from error

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kills the process: a caller that waits for an answer gets ProcessEnded."""
        self._process.kill()

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        self._process.kill()
        self._process.wait()


class Apart:
    """The processes of one broker. Its methods may be called in any thread."""

    def __init__(self, processes: int = PROCESSES) -> None:
        self._idle: list[_Process] = []
        self._at_work: set[_Process] = set()
        self._room = threading.BoundedSemaphore(processes)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def at_work(self) -> int:
        """The number of busy processes."""
        with self._lock:
            return len(self._at_work)

    def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """The function's result, computed in another process. Blocks, so callers use a thread."""
        question = pickle.dumps((function, arguments))
        with self._room:
            try:
                answer = self._ask(question, new=False)
            except ProcessEnded:
                # The process had just been idle for too long, or was killed.
                answer = self._ask(question, new=True)
        failed, result = pickle.loads(answer)
        if failed:
            raise result
        return result  # type: ignore[no-any-return]

    def _ask(self, question: bytes, *, new: bool) -> bytes:
        process = self._take(new=new)
        try:
            answer = process.ask(question)
        finally:
            with self._lock:
                self._at_work.discard(process)
        with self._lock:
            if not self._closed:
                self._idle.append(process)
                return answer
        process.close()
        return answer

    def _take(self, *, new: bool) -> _Process:
        with self._lock:
            if self._closed:
                raise ProcessEnded("the broker is stopping")
            while self._idle and not new:
                process = self._idle.pop()
                if not process.ended:
                    self._at_work.add(process)
                    return process
                process.close()
            try:
                process = _Process()
            except OSError as error:
                raise StorageFailure(f"no process for records could be started: {error}") from error
            self._at_work.add(process)
            return process

    def close(self) -> None:
        """Ends all processes. Calls that are under way raise ProcessEnded."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for process in self._at_work:
                process.kill()
        for process in idle:
            process.close()


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(_LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    length = pipe.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(length)
    message = pipe.read(size)
    if len(message) < size:
        raise EOFError
    return message


def _answer(question: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(question)
        return pickle.dumps((False, function(*arguments)))
    except Exception as failure:
        try:
            # Some exceptions pickle but do not unpickle.
            answer = pickle.dumps((True, failure))
            pickle.loads(answer)
        except Exception:
            return pickle.dumps((True, StorageFailure(f"{type(failure).__name__}: {failure}")))
        return answer


def main() -> None:
    """Answers calls until standard input ends. The argument is the broker's process id: if another process is the
    parent, the broker has died."""
    import ctypes
    import resource
    import select
    import signal

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the broker is gone")
    # A terminal's Ctrl-C goes to all of its processes; this process ends with its broker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    while select.select([questions], [], [], IDLE_S)[0]:
        try:
            question = _receive(questions)
        except EOFError:
            return
        _send(answers, _answer(question))


if __name__ == "__main__":
    main()

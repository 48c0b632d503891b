"""Python work on records, done in a process of its own: a thread would hold the interpreter lock against the loop.

    apart = Apart()
    prepared = apart.call(prepare_each, tasks, left_bytes)     # in a thread: it waits for the answer

`call(function, *arguments)` is the whole interface. The function is one of a module's own (it is found by its name in
the other process), without side effects, since it is called once more if the process ends before it has answered.
Arguments and result are pickled: batches as bytes, and named tuples. What the function raises is raised here, if it is
an Exception that pickles.

Up to PROCESSES are started, each when it is needed and all others are busy. One that has had nothing to do for IDLE_S
ends by itself; all of them die with their parent, and with the thread that started them. None may take more than
MEMORY_BYTES: a function that wants more gets a MemoryError, as its caller does.

A node has one as `apart`. A handler uses it in work for its client's threads:

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
"""Clients wait for this work, so it goes before compaction; nothing goes before the loop."""

MEMORY_BYTES = 1024 * 1024 * 1024
"""Address space. The records of a batch are at most 128 MiB, and there are two copies while they are put together."""

PR_SET_PDEATHSIG = 1
_LENGTH = struct.Struct(">Q")


class ProcessEnded(StorageFailure):
    """The process for records ended before it had answered."""


class _Process:
    """One process, for one call at a time."""

    def __init__(self) -> None:
        # Imported here: a broker starts in tens of milliseconds, and may never need it.
        import subprocess

        self._process = subprocess.Popen(
            [sys.executable, "-m", "cordwood.log.apart", str(os.getpid())],
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
        """Whoever waits for its answer gets ProcessEnded."""
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
        """How many processes have something to do."""
        with self._lock:
            return len(self._at_work)

    def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """What the function gives, run in another process. Blocks: call it in a thread."""
        question = pickle.dumps((function, arguments))
        with self._room:
            try:
                answer = self._ask(question, new=False)
            except ProcessEnded:
                # It had just been idle for too long, or something killed it.
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
            # Some exceptions pickle, and cannot be made again from that.
            answer = pickle.dumps((True, failure))
            pickle.loads(answer)
        except Exception:
            return pickle.dumps((True, StorageFailure(f"{type(failure).__name__}: {failure}")))
        return answer


def main() -> None:
    """The argument is the broker's process id: a broker that died before we asked to be told is not our parent."""
    import ctypes
    import resource
    import select
    import signal

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the broker is gone")
    # A terminal's Ctrl-C goes to all of its processes; this one ends when its broker does.
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

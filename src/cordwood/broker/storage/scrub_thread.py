"""The thread of the scrub's reads, with the lowest priority for the disk.

For the processor it has the priority of the process. A nicer thread waits for seconds on a busy machine, and the rest
of the broker with it: the event loop for the lock of Python's interpreter, which the thread may hold, and the other
brokers for the end of a broker that was killed, whose connections stay open until its last thread has run once more.
On two cores with a load of 8 a thread that ticks each 2 ms was late by 314 and 421 ms at worst beside a busy one of
niceness 19, and by 21 and 32 ms beside one of its own; at a load of 17 a killed broker ended after 1.9 s.
"""

import asyncio
import ctypes
import platform
import threading
from collections.abc import Callable
from typing import Any, Final

from cordwood.broker.machine.threads import Workers

_IOPRIO_WHO_PROCESS: Final = 1
_IDLE: Final = 3 << 13
_SYS_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30}


class ScrubThread:
    def __init__(self, loop: asyncio.AbstractEventLoop, run_in_node: Callable[[Callable[[], None]], object]) -> None:
        """`run_in_node` runs an event on the node, in the loop."""
        self._workers = Workers(loop, "scrub", 1)
        self._run_in_node = run_in_node
        self._lowered = False

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def in_thread() -> Any:
            if not self._lowered:
                self._lowered = True
                let_others_read_first()
            return work()

        def finished(result: Any) -> None:
            self._run_in_node(lambda: done(result))

        self._workers.submit(in_thread, finished)

    def close(self) -> None:
        self._workers.close()


def let_others_read_first() -> None:
    """Gives the calling thread the lowest priority for the disk: on Linux each thread has its own."""
    thread = threading.get_native_id()
    number = _SYS_IOPRIO_SET.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None).syscall(number, _IOPRIO_WHO_PROCESS, thread, _IDLE)

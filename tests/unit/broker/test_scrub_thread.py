"""The thread of the scrub gives way to other reads, and to nobody on the processor."""

import asyncio
import ctypes
import os
import platform
import threading
from typing import Any

import pytest

from cordwood.broker.storage.scrub_thread import ScrubThread

IOPRIO_GET = {"x86_64": 252, "aarch64": 31}
OF_A_THREAD = 1
IDLE_CLASS = 3
TIMEOUT_S = 30


def in_the_thread(work: Any) -> Any:
    async def asked() -> Any:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()
        thread = ScrubThread(loop, lambda event: event())
        thread.submit(work, outcome.set_result)
        try:
            return await asyncio.wait_for(outcome, TIMEOUT_S)
        finally:
            thread.close()

    return asyncio.run(asked())


def test_it_has_the_niceness_of_the_broker() -> None:
    """A nicer thread starves on a busy machine, with the interpreter's lock in its hand, or as the last thread of a
    killed broker, whose connections stay open for as long."""
    niceness = in_the_thread(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    assert niceness == os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.skipif(platform.machine() not in IOPRIO_GET, reason="the number of the system call is not known")
def test_its_reads_come_after_all_others() -> None:
    get = IOPRIO_GET[platform.machine()]
    found = in_the_thread(lambda: ctypes.CDLL(None).syscall(get, OF_A_THREAD, threading.get_native_id()))
    assert found >> 13 == IDLE_CLASS

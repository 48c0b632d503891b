"""The memory that a piece of work takes, measured with tracemalloc in a process of its own.

tracemalloc of CPython 3.11 may crash if a thread ends while it is started or stopped, and each test has a thread for
its timeout.
"""

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

WITHIN_S = 180


def traced(work: Callable[..., None], *arguments: Any) -> int:
    """The most bytes that `work`, a function of a module, had at a time. Raises what it raises."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_traced, work, *arguments).result(WITHIN_S)


def _traced(work: Callable[..., None], *arguments: Any) -> int:
    tracemalloc.start()
    work(*arguments)
    _, peak = tracemalloc.get_traced_memory()
    return peak

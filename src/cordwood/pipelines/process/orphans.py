"""The lines that a worker reads from its supervisor, and its end if the supervisor is gone.

A supervisor says END before it closes the worker's standard input, and the worker ends after the batches under way. An
input that ends without that word means that the supervisor was killed: the worker kills itself with Java and Python
workers, as the supervisor does at a second signal, and the next run does the interrupted batches again. Otherwise a
long batch would hold its edition, and memory, against whoever is started next.
"""

import os
import signal
from collections.abc import Iterable, Iterator
from typing import Final

END: Final = "end"


def lines_of_supervisor(stream: Iterable[str]) -> Iterator[str]:
    """The lines until END. Does not return if the stream ends without it."""
    for line in stream:
        if line.strip() == END:
            return
        yield line
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)  # a worker that was started by hand shares its group with others

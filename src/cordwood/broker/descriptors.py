"""Who gets how many of the descriptors that this process may open, so that connections never take those of files."""

import resource
from typing import Final

RESERVED: Final = 64
"""For what is neither a file of the log kept open nor a client: the metadata, scrapes, cold reads, a compaction."""

PER_CONNECTION: Final = 2
"""One that is sent records straight from files has a second one."""


def log_files(wanted: int) -> int:
    """How many files of the log may be open at a time: as many as are wanted, up to half of all descriptors."""
    allowed = _allowed()
    return wanted if allowed is None else min(wanted, max(16, allowed // 2))


def connections(wanted: int, beside_log_files: int) -> int:
    """How many connections may be open at a time: as many as are wanted, if they fit beside the files."""
    allowed = _allowed()
    return wanted if allowed is None else min(wanted, max(1, (allowed - beside_log_files - RESERVED) // PER_CONNECTION))


def _allowed() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft

"""Divides the process's file descriptors between log files and connections: connections never starve files."""

import resource
from typing import Final

RESERVED: Final = 64
"""Descriptors for other uses: the metadata, scrapes, cold reads, a compaction."""

PER_CONNECTION: Final = 2
"""A connection to which records are sent straight from files has a second descriptor."""


def log_files(wanted: int) -> int:
    """The number of log files that may be open at a time: the wanted number, up to half of all descriptors."""
    limit = allowed()
    return wanted if limit is None else min(wanted, max(16, limit // 2))


def connections(wanted: int, beside_log_files: int) -> int:
    """The number of connections that may be open at a time: the wanted number, if they fit beside the files."""
    limit = allowed()
    return wanted if limit is None else min(wanted, max(1, (limit - beside_log_files - RESERVED) // PER_CONNECTION))


def shortage(connections_wanted: int, files_wanted: int, possible: int, max_open_files: int) -> str:
    """The log line about fewer connections, or fewer open log files, than the settings ask for."""
    fewer = [
        f"up to {got} {what}, not {setting} ({wanted})"
        for got, what, setting, wanted in (
            (possible, "connections", "max.connections", connections_wanted),
            (max_open_files, "open log files", "open.files.max", files_wanted),
        )
        if got < wanted
    ]
    limit = f"few file descriptors (ulimit -Hn is {allowed()})"
    return f"{limit}: {', and '.join(fewer)}. Raise the limit (systemd: LimitNOFILE)"


def allowed() -> int | None:
    """The descriptors that this process may have; None: any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft

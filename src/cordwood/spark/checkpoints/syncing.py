"""Makes a checkpoint durable: syncs the files that were written since the last sync, and their directories.

Spark writes every file of a checkpoint beside its place and renames it, and syncs neither file nor directory. Each new
file is synced by itself, sixteen at a time, so that the disk is flushed for many at once. syncfs would also write
whatever else is dirty on the file system, such as Spark's shuffle files. syncfs would also lose errors: the process
that decides starts after the files were written, and a failed write-back that another process's syncfs has seen is not
reported again.

The time of an empty file, `.cordwood-synced`, records when the last sync began. Times are compared as the file system
gave them out when a file was written or renamed (ctime): no program can set them. If the last sync is not known, or is
ahead of the clock, everything is synced.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cordwood.model.durable_files import replace_file, sync

STAMP: Final = ".cordwood-synced"
_AT_ONCE: Final = 16


def sync_checkpoint(checkpoint: Path) -> int:
    """Syncs a checkpoint, and returns the number of synced files and directories. Raises OSError: files that could not
    be synced may be lost."""
    with files_to_sync(checkpoint) as paths, ThreadPoolExecutor(_AT_ONCE) as threads:
        return sum(threads.map(sync_file, paths))


@contextmanager
def files_to_sync(checkpoint: Path) -> Iterator[list[Path]]:
    """Files and directories that are new since the last sync. They count as synced when the block ends well."""
    since_ns, now_ns = _times(checkpoint)
    paths = list(_written_since(checkpoint, since_ns))
    if checkpoint / "metadata" in paths:
        # The parents of a new checkpoint may be new, too.
        paths += _parents(checkpoint)
    yield paths
    os.utime(checkpoint / STAMP, ns=(now_ns, now_ns))


def _times(checkpoint: Path) -> tuple[int, int]:
    """The beginning of the last sync, 0 if unknown, and the present time, by the clock of the file system."""
    stamp = checkpoint / STAMP
    try:
        since_ns = stamp.stat().st_mtime_ns
    except FileNotFoundError:
        stamp.touch()
        since_ns = 0
    os.utime(stamp, ns=(since_ns, since_ns))  # the ctime is now; the mtime stays until all is synced
    now_ns = stamp.stat().st_ctime_ns
    return since_ns if since_ns <= now_ns else 0, now_ns


def _written_since(directory: Path, since_ns: int) -> Iterator[Path]:
    """Files and directories written since then. A rename changes the time of its directory: an older directory has
    nothing new except in its subdirectories."""
    try:
        is_new = directory.stat().st_ctime_ns >= since_ns
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return  # Spark removes old files meanwhile
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _written_since(Path(entry.path), since_ns)
        elif is_new and entry.name != STAMP and _is_new_file(entry, since_ns):
            yield Path(entry.path)
    if is_new:
        yield directory


def _is_new_file(entry: "os.DirEntry[str]", since_ns: int) -> bool:
    try:
        return entry.is_file() and entry.stat().st_ctime_ns >= since_ns
    except FileNotFoundError:
        return False


def _parents(checkpoint: Path) -> Iterator[Path]:
    """The directories above a checkpoint, up to the root of its file system: those above were there before it was
    mounted."""
    directory = checkpoint.resolve()
    while not os.path.ismount(directory):
        directory = directory.parent
        yield directory


def sync_file(path: Path) -> int:
    """Syncs a file. Returns 1, or 0 if the file is gone."""
    try:
        sync(path)
    except FileNotFoundError:
        return 0
    return 1


def replace_in_checkpoint(path: Path, content: bytes) -> None:
    """Replaces a file durably, also in a new directory."""
    path.parent.mkdir(exist_ok=True)
    # Hadoop keeps a checksum beside each file that it writes, which would no longer match.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    # Spark does not see names with a dot.
    replace_file(path, content, unfinished=f"{path.parent}/.{path.name}.{os.getpid()}.tmp")
    sync(path.parent.parent)

"""Decides whether one syncfs may replace the fsync of many files. The answer is no unless syncfs is known to be safe.

syncfs reaches one filesystem. A data directory with links to another disk is synced file by file.
"""

import os

_TRUSTED = frozenset({"ext4", "xfs", "btrfs", "f2fs"})
"""Filesystems whose syncfs waits until data and names are durable. The syncfs of FUSE, for one, may do nothing at
all."""

_REPORTS_FAILURES_SINCE = (5, 8)
"""Before this version of Linux syncfs returned success when writing back had failed."""


def syncfs_can_be_trusted(directory: str, *, release: str | None = None, mounts: str | None = None) -> bool:
    """True if syncfs is safe on the directory's filesystem. `release` and `mounts` default to the machine's own."""
    if _version(os.uname().release if release is None else release) < _REPORTS_FAILURES_SINCE:
        return False
    if not _is_one_filesystem(directory):
        return False
    return filesystem_type(directory, mounts=mounts) in _TRUSTED


def filesystem_type(directory: str, *, mounts: str | None = None) -> str | None:
    """The type of the directory's filesystem; None if it cannot be found out."""
    if mounts is None:
        try:
            with open("/proc/self/mountinfo") as file:
                mounts = file.read()
        except OSError:
            return None
    return _filesystem_type(os.path.realpath(directory), mounts)


def _is_one_filesystem(directory: str) -> bool:
    """True if the directory and its subdirectories are on one device. New ones are on the directory's device."""
    try:
        device = os.stat(directory).st_dev
        with os.scandir(directory) as entries:
            return all(entry.stat().st_dev == device for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _version(release: str) -> tuple[int, int]:
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def _filesystem_type(path: str, mounts: str) -> str | None:
    """The type of the filesystem with the longest mount point above the path; the last one among equals."""
    best_length, best_type = -1, None
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount_point = fields[4].encode().decode("unicode_escape")
        inside = path == mount_point or path.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= best_length:
            best_length, best_type = len(mount_point), after.split(" ")[0]
    return best_type

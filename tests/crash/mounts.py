"""Filesystems of our own to break: ext4 on a loop device whose power can be cut, and a small tmpfs that fills up.

Needs root and the tools of util-linux and e2fsprogs: `MountUnavailable` says what is missing, which tests turn into a
skip.
"""

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
"""What is in memory, the journal's included, never gets to the disk: a power cut."""


class MountUnavailable(Exception):
    """This machine does not let us mount; the message says why."""


def _run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        raise MountUnavailable(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise MountUnavailable(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _need_root() -> None:
    if os.geteuid() != 0:
        raise MountUnavailable("mounting needs root")


class Disk:
    """A filesystem of our own, mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.path)], check=True, timeout=60)

    def destroy(self) -> None:
        """For the end of a test; whoever used it is gone by now."""
        if self.path.is_mount():
            self.unmount()


class LoopDisk(Disk):
    """ext4 on a loop device: its power can be cut."""

    def __init__(self, directory: Path, size_mib: int) -> None:
        super().__init__(directory / "disk")
        _need_root()
        self.path.mkdir()
        image = directory / "disk.img"
        with image.open("wb") as file:
            file.truncate(size_mib << 20)
        _run("mkfs.ext4", "-q", str(image))
        self._device = _run("losetup", "--find", "--show", str(image))
        try:
            self.mount()
        except MountUnavailable:
            self.destroy()
            raise

    def mount(self) -> None:
        _run("mount", "-t", "ext4", self._device, str(self.path))

    def cut_power(self) -> None:
        """From now on nothing reaches the disk; every call that would need it fails."""
        root = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(root, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(root)

    def destroy(self) -> None:
        super().destroy()
        subprocess.run(["losetup", "--detach", self._device], check=True, timeout=60)


class SmallTmpfs(Disk):
    """Memory that looks like a disk, and fills up."""

    def __init__(self, directory: Path, size_mib: int) -> None:
        super().__init__(directory / "small")
        _need_root()
        self.path.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "cordwood-test", str(self.path))

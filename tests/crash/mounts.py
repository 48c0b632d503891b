"""Filesystems of our own to break: ext4 that loses power or loses writes, and a small tmpfs that fills up.

Needs root and the tools of util-linux and e2fsprogs: `MountUnavailable` says what is missing, which tests turn into a
skip.
"""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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

    def __init__(self, directory: Path, size_mib: int, *, image: Path | None = None) -> None:
        super().__init__(directory / "disk")
        _need_root()
        self.path.mkdir()
        if image is None:
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


class LosingDisk:
    """ext4 that takes writes into its cache and loses them later, with EIO, while `losing`.

    The loop device's image lies in a tmpfs. Blocks of metadata and of the journal are there from the beginning, free
    ones are holes: once the tmpfs is full, writing back new data fails, and nothing else does.
    """

    def __init__(self, directory: Path, size_mib: int = 48) -> None:
        self._memory = SmallTmpfs(directory, size_mib + 8)
        image = self._memory.path / "disk.img"
        with image.open("wb") as file:
            file.truncate(size_mib << 20)
        try:
            self._disk = LoopDisk(directory, size_mib, image=image)
        except MountUnavailable:
            self._memory.destroy()
            raise
        self.path = self._disk.path
        self._filler = self._memory.path / "filler"
        try:
            with image.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, size_mib << 20)
            _run("fstrim", str(self.path))
        except MountUnavailable:
            self.destroy()
            raise

    @contextmanager
    def losing(self) -> Iterator[None]:
        """No new block can be written back."""
        _run("sync", "--file-system", str(self.path))
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        try:
            yield
        finally:
            self._filler.unlink()

    def destroy(self) -> None:
        # Lazily: a test that failed may have left files open.
        for mounted in (self._disk, self._memory):
            subprocess.run(["umount", "--lazy", str(mounted.path)], check=True, timeout=60)
            mounted.destroy()


class SmallTmpfs(Disk):
    """Memory that looks like a disk, and fills up."""

    def __init__(self, directory: Path, size_mib: int) -> None:
        super().__init__(directory / "small")
        _need_root()
        self.path.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "cordwood-test", str(self.path))

"""How to make 1, 10, 100 and 1,000 dirty partitions durable: milliseconds per round, by strategy.

Run: python benchmarks/fsync_strategies.py --directory DIR [--noise-mb-s 150] [--files 1,10,100,1000] [--json FILE]

A round appends one small batch to every file and then makes all of them durable; only the second half is timed.
Strategies take turns within a round of rounds, so that a bad moment of the disk hits all of them. With noise another
process writes a big file to the same filesystem, buffered, at the given rate. docs/decisions/group-commit.md explains
what was chosen.
"""

import argparse
import ctypes
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_libc = ctypes.CDLL(None, use_errno=True)
_START_WRITING = 2

Strategy = Callable[["Files"], None]


class Files:
    """The partitions' files, a directory handle for syncfs, and a journal that is written in place over and over."""

    def __init__(self, directory: str, count: int, batch: int, pools: dict[int, ThreadPoolExecutor]) -> None:
        self.pools = pools
        self.batch = os.urandom(batch)
        self.fds = [
            os.open(os.path.join(directory, f"{number}.log"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            for number in range(count)
        ]
        self.directory_fd = os.open(directory, os.O_RDONLY)
        self.journal_size = 64 << 20
        self.journal_fd = os.open(os.path.join(directory, "journal"), os.O_RDWR | os.O_CREAT, 0o644)
        for position in range(0, self.journal_size, 1 << 20):
            os.pwrite(self.journal_fd, bytes(1 << 20), position)
        os.fsync(self.journal_fd)
        self.journal_position = 0

    def append_everywhere(self) -> None:
        for fd in self.fds:
            os.write(fd, self.batch)

    def write_journal(self) -> None:
        """All batches once more, in one file whose blocks exist already: nothing but data has to reach the disk."""
        everything = self.batch * len(self.fds)
        if self.journal_position + len(everything) > self.journal_size:
            self.journal_position = 0
        os.pwrite(self.journal_fd, everything, self.journal_position)
        self.journal_position += len(everything)

    def close(self) -> None:
        for fd in (*self.fds, self.directory_fd, self.journal_fd):
            os.close(fd)


def one_by_one(files: Files) -> None:
    for fd in files.fds:
        os.fdatasync(fd)


def in_threads(count: int) -> Strategy:
    def sync(files: Files) -> None:
        list(files.pools[count].map(os.fdatasync, files.fds, chunksize=1))

    return sync


def whole_filesystem(files: Files) -> None:
    if _libc.syncfs(files.directory_fd) != 0:
        raise OSError(ctypes.get_errno(), "syncfs")


def staged(files: Files) -> None:
    """Starts the writing of all files before it waits for the first."""
    for fd in files.fds:
        if _libc.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), _START_WRITING) != 0:
            raise OSError(ctypes.get_errno(), "sync_file_range")
    for fd in files.fds:
        os.fdatasync(fd)


def shared_journal(files: Files) -> None:
    files.write_journal()
    os.fdatasync(files.journal_fd)


STRATEGIES: dict[str, Strategy] = {
    "fdatasync, one by one": one_by_one,
    "fdatasync, 2 threads": in_threads(2),
    "fdatasync, 4 threads": in_threads(4),
    "fdatasync, 16 threads": in_threads(16),
    "staged fdatasync": staged,
    "syncfs": whole_filesystem,
    "shared journal": shared_journal,
}


def make_noise(directory: str, megabytes_per_s: float) -> int:
    """A neighbour that writes without ever syncing; its pid."""
    pid = os.fork()
    if pid:
        return pid
    block = os.urandom(1 << 20)
    path = os.path.join(directory, "neighbour")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    started, written = time.monotonic(), 0
    while True:
        os.write(fd, block)
        written += 1
        if written % 2048 == 0:
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
        ahead = written / megabytes_per_s - (time.monotonic() - started)
        if ahead > 0:
            time.sleep(ahead)


def measure(
    directory: str, count: int, batch: int, rounds: int, pools: dict[int, ThreadPoolExecutor]
) -> list[dict[str, object]]:
    files = Files(directory, count, batch, pools)
    files.append_everywhere()
    whole_filesystem(files)
    times: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    for _ in range(rounds):
        for name, sync in STRATEGIES.items():
            files.append_everywhere()
            started = time.perf_counter()
            sync(files)
            times[name].append((time.perf_counter() - started) * 1000)
            if sync is shared_journal:
                whole_filesystem(files)
    files.close()
    return [
        {
            "files": count,
            "strategy": name,
            "p50_ms": statistics.median(values),
            "p90_ms": sorted(values)[int(len(values) * 0.9)],
            "max_ms": max(values),
        }
        for name, values in times.items()
    ]


def hand_off(rounds: int = 5000) -> float:
    """Microseconds from the loop to a waiting thread and back: the price of syncing outside the loop."""
    import asyncio
    from queue import SimpleQueue

    import uvloop

    async def main() -> float:
        loop = asyncio.get_running_loop()
        work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

        def thread() -> None:
            while (call := work.get()) is not None:
                loop.call_soon_threadsafe(call)

        threading.Thread(target=thread).start()
        times = []
        for _ in range(rounds):
            done = asyncio.Event()
            started = time.perf_counter()
            work.put(done.set)
            await done.wait()
            times.append(time.perf_counter() - started)
        work.put(None)
        return statistics.median(times) * 1e6

    return float(uvloop.run(main()))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--directory", default=".", help="where to make the files: the filesystem to measure")
    arguments.add_argument("--files", default="1,10,100,1000")
    arguments.add_argument("--batch", type=int, default=1024)
    arguments.add_argument("--seconds", type=float, default=6, help="about how long each number of files may take")
    arguments.add_argument("--noise-mb-s", type=float, default=0)
    arguments.add_argument("--json")
    options = arguments.parse_args()
    directory = tempfile.mkdtemp(dir=options.directory, prefix="fsync-")
    pools = {count: ThreadPoolExecutor(count) for count in (2, 4, 16)}
    neighbour = make_noise(directory, options.noise_mb_s) if options.noise_mb_s else 0
    rows: list[dict[str, object]] = []
    try:
        if neighbour:
            time.sleep(3)
        print(f"{'files':>6} {'strategy':24} {'p50 ms':>9} {'p90 ms':>9} {'max ms':>9}")
        for count in map(int, options.files.split(",")):
            started = time.perf_counter()
            measure(directory, count, options.batch, 1, pools)
            rounds = max(5, min(200, int(options.seconds / (time.perf_counter() - started))))
            for row in measure(directory, count, options.batch, rounds, pools):
                rows.append(row | {"noise_mb_s": options.noise_mb_s})
                took = " ".join(f"{row[name]:9.2f}" for name in ("p50_ms", "p90_ms", "max_ms"))
                print(f"{row['files']:6} {row['strategy']:24} {took}")
            sys.stdout.flush()
        print(f"loop to thread to loop: {hand_off():.1f} us")
    finally:
        if neighbour:
            os.kill(neighbour, signal.SIGKILL)
            os.waitpid(neighbour, 0)
        for pool in pools.values():
            pool.shutdown()
        shutil.rmtree(directory)
    if options.json:
        with open(options.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()

"""What it costs to make a checkpoint durable before a decision, beside the two other ways to do it.

    python -m benchmarks.checkpoint_sync DIRECTORY

Writes what Spark writes in a micro-batch (a plan, and two files for each partition of state), then syncs it: as the
sink does, one file after the other, and with syncfs. With nothing else dirty on the file system, and with 256 MiB of
somebody else's.
"""

import ctypes
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cordwood.spark.checkpoints.plans import plan_path
from cordwood.spark.checkpoints.syncing import sync_checkpoint

ROUNDS = 5
_libc = ctypes.CDLL(None, use_errno=True)


def write(checkpoint: Path, batch_id: int, partitions: int) -> list[Path]:
    paths = [
        plan_path(checkpoint, batch_id),
        *(checkpoint / "commits" / str(batch_id - 1) for _ in range(batch_id > 0)),
    ]
    for partition in range(partitions):
        directory = checkpoint / "state" / "0" / str(partition)
        paths += [directory / f"{batch_id + 1}.delta", directory / f".{batch_id + 1}.delta.crc"]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.tmp")
        beside.write_bytes(b"x" * 500)
        beside.rename(path)
    return [*paths, *{path.parent for path in paths}]


def one_by_one(paths: list[Path]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def with_syncfs(checkpoint: Path) -> None:
    descriptor = os.open(checkpoint, os.O_RDONLY)
    assert _libc.syncfs(descriptor) == 0
    os.close(descriptor)


def main(directory: Path) -> None:
    print("dirty MiB of others, partitions of state: as the sink does, one by one, syncfs (median ms)")
    for dirty_mib in (0, 256):
        for partitions in (0, 20, 200):
            ways: list[Callable[[Path, list[Path]], object]] = [
                lambda checkpoint, _: sync_checkpoint(checkpoint),
                lambda _, paths: one_by_one(paths),
                lambda checkpoint, _: with_syncfs(checkpoint),
            ]
            medians = [median_ms(directory, way, partitions, dirty_mib) for way in ways]
            print(f"{dirty_mib:4} {partitions:4}: " + " ".join(f"{each:8.1f}" for each in medians))


def median_ms(directory: Path, way: Callable[[Path, list[Path]], object], partitions: int, dirty_mib: int) -> float:
    """Of all batches but the first, in which the directories are new."""
    checkpoint = directory / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    took_ms = []
    for batch_id in range(ROUNDS + 1):
        paths = write(checkpoint, batch_id, partitions)
        (directory / "others").write_bytes(b"y" * (dirty_mib << 20))
        started = time.perf_counter()
        way(checkpoint, paths)
        took_ms.append((time.perf_counter() - started) * 1000)
    return statistics.median(took_ms[1:])


if __name__ == "__main__":
    main(Path(sys.argv[1]))

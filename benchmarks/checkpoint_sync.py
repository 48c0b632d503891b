"""What it costs to make a checkpoint durable before a decision, beside the two other ways to do it.

    python -m benchmarks.checkpoint_sync DIRECTORY

Writes what Spark writes in a micro-batch (a plan, a commit, and two files for each partition of state), then syncs it:
as the sink does, one file after the other, and with syncfs. All three look for the new files first. With nothing else
dirty on the file system, and with 256 MiB of somebody else's. The ways take turns, batch by batch, each with a
checkpoint of its own: a disk that others use is as busy for one as for the next.
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
from cordwood.spark.checkpoints.syncing import files_to_sync, sync_checkpoint, sync_file

ROUNDS = 5
_libc = ctypes.CDLL(None, use_errno=True)


def write(checkpoint: Path, batch_id: int, partitions: int) -> None:
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


def one_by_one(checkpoint: Path) -> None:
    with files_to_sync(checkpoint) as paths:
        for path in paths:
            sync_file(path)


def with_syncfs(checkpoint: Path) -> None:
    with files_to_sync(checkpoint):
        descriptor = os.open(checkpoint, os.O_RDONLY)
        assert _libc.syncfs(descriptor) == 0
        os.close(descriptor)


WAYS: dict[str, Callable[[Path], object]] = {
    "as the sink does": sync_checkpoint,
    "one by one": one_by_one,
    "syncfs": with_syncfs,
}


def main(directory: Path) -> None:
    print(f"dirty MiB of others, partitions of state: {', '.join(WAYS)} (median ms)")
    for dirty_mib in (0, 256):
        for partitions in (0, 20, 200):
            medians = medians_ms(directory, partitions, dirty_mib)
            print(f"{dirty_mib:4} {partitions:4}: " + " ".join(f"{each:8.1f}" for each in medians), flush=True)


def medians_ms(directory: Path, partitions: int, dirty_mib: int) -> list[float]:
    """Of all batches but the first, in which the directories are new."""
    took_ms: dict[str, list[float]] = {name: [] for name in WAYS}
    checkpoints = {name: directory / f"checkpoint of {name}" for name in WAYS}
    others = directory / "others"
    for batch_id in range(ROUNDS + 1):
        for name, way in WAYS.items():
            write(checkpoints[name], batch_id, partitions)
            others.write_bytes(b"y" * (dirty_mib << 20))
            started = time.perf_counter()
            way(checkpoints[name])
            took_ms[name].append((time.perf_counter() - started) * 1000)
            others.unlink()  # ext4 writes back a file at once that takes the place of another
    for checkpoint in checkpoints.values():
        shutil.rmtree(checkpoint)
    return [statistics.median(each[1:]) for each in took_ms.values()]


if __name__ == "__main__":
    main(Path(sys.argv[1]))

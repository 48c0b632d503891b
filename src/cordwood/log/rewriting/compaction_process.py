"""Compaction in a process of its own: opening records never holds the broker's interpreter lock.

The job goes in on standard input as JSON, the result comes back on standard output. The process runs at low priority
and dies with its parent: a broker that starts again must be the only writer in its directories.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.log.rewriting.compaction import CompactionJob, CompactionResult, Replacement, compact
from cordwood.model.errors import DamagedLog, DiskFull, StorageFailure, SyncFailure
from cordwood.segments.transaction_index import AbortedTransaction

NICENESS = 10
PR_SET_PDEATHSIG = 1
_FAILURES: dict[str, type[StorageFailure]] = {
    kind.__name__: kind for kind in (DamagedLog, DiskFull, SyncFailure, StorageFailure)
}


def compact_in_process(job: CompactionJob) -> CompactionResult:
    """Runs the job in another process and waits for it, so callers use a thread."""
    finished = subprocess.run(
        [sys.executable, "-m", "cordwood.log.rewriting.compaction_process", str(os.getpid())],
        input=json.dumps(_encode_job(job)),
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        last_line = finished.stderr.strip().rpartition("\n")[2]
        raise StorageFailure(f"compaction of {job.directory} ended with exit code {finished.returncode}: {last_line}")
    answer = json.loads(finished.stdout)
    if "failure" in answer:
        raise _FAILURES[answer["failure"]](answer["message"])
    replacements = [Replacement(tuple(each["old"]), each["new"]) for each in answer.pop("replacements")]
    return CompactionResult(replacements=replacements, **answer)


def _encode_job(job: CompactionJob) -> dict[str, Any]:
    encoded = asdict(job)
    encoded["last_offsets"] = list(job.last_offsets.items())  # JSON has no integer keys
    return encoded


def _decode_job(encoded: dict[str, Any]) -> CompactionJob:
    encoded["segments"] = tuple(encoded["segments"])
    encoded["sizes"] = tuple(encoded["sizes"])
    encoded["last_offsets"] = dict(encoded["last_offsets"])
    encoded["aborted_later"] = tuple(AbortedTransaction(*entry) for entry in encoded["aborted_later"])
    return CompactionJob(**encoded)


def main() -> None:
    """Runs one job. The argument is the broker's process id: if another process is the parent, the broker has died."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the broker is gone")
    os.nice(NICENESS)
    job = _decode_job(json.load(sys.stdin))
    answer: dict[str, Any]
    try:
        result = compact(OsFilesystem(job.directory), job)
        answer = {**asdict(result), "replacements": [each._asdict() for each in result.replacements]}
    except StorageFailure as failure:
        kind = next(name for name, each in _FAILURES.items() if isinstance(failure, each))
        answer = {"failure": kind, "message": str(failure)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()

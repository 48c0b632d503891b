"""Faults on three real nodes, and on the workers of one, under plain, idempotent and transactional clients: the history
checker finds nothing.

Each test is a run of `python -m tests.cluster.faults` or `.workers`, which prints what it does; the output of
a failed test says where its logs and histories are.
"""

import os
import subprocess
import sys

import pytest
from tests.cluster.faults.__main__ import NOT_HERE
from tests.etcd.finding import Etcd
from tests.seeds import FIRST_SEED

MINUTES = float(os.environ.get("CORDWOOD_FAULT_MINUTES", "1"))
SEED = FIRST_SEED or 20260101
WORKERS = "tests.cluster.faults.workers"
ALL = ("--namespaces", "--disks")


def run(*options: str, within_s: float, module: str = "tests.cluster.faults") -> None:
    if missing := what_is_missing(*options, within_s=within_s, module=module):
        pytest.skip(missing)


def what_is_missing(*options: str, within_s: float, module: str = "tests.cluster.faults") -> str | None:
    """Plays faults that find nothing; says what this machine lacks if they cannot be played."""
    command = [sys.executable, "-m", module, "--seed", str(SEED), *options]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        said, _ = process.communicate(timeout=60)
    print(" ".join(command))
    print(said)
    if process.returncode == NOT_HERE:
        return str(said.splitlines()[-1])
    assert process.returncode == 0, said[-6000:]
    return None


@pytest.mark.timeout(600)
def test_nothing_is_lost_when_a_process_dies_or_hangs_or_is_cut_off(etcd: Etcd) -> None:
    faults = "kill-9,paused"
    if what_is_missing("--only", f"{faults},partition", "--namespaces", "--shorter", "4", within_s=360):
        run("--only", faults, "--shorter", "4", within_s=360)


@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    "kinds",
    [
        "kill-9,controller-killed,two-killed,etcd-leader-and-broker,paused,read-errors",
        "etcd-without-quorum,rolling-restart,emptied-disk,power-cut",
        "partition,deposed-leader,one-way-partition,link-cut,slow-link,disk-full",
    ],
    ids=["processes", "stores and disks", "links and space"],
)
def test_nothing_is_lost_by_any_one_fault(etcd: Etcd, kinds: str) -> None:
    run("--only", kinds, *ALL, within_s=600)


@pytest.mark.soak
@pytest.mark.timeout(600 + 120 * MINUTES)
def test_nothing_is_lost_by_faults_that_come_together(etcd: Etcd) -> None:
    run("--minutes", str(MINUTES), *ALL, within_s=500 + 120 * MINUTES)


@pytest.mark.timeout(700)
def test_nothing_is_lost_when_workers_and_their_supervisor_die_or_hang() -> None:
    kinds = "worker-killed,worker-hangs,supervisor-paused,supervisor-killed-while-a-worker-hangs,killed-while-starting"
    run("--only", kinds, within_s=600, module=WORKERS)


@pytest.mark.soak
@pytest.mark.timeout(600 + 120 * MINUTES)
def test_nothing_is_lost_by_many_faults_of_workers() -> None:
    run("--minutes", str(MINUTES), within_s=500 + 120 * MINUTES, module=WORKERS)

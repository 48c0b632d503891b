"""The demo's cluster: whatever happens in its chapter, no process stays behind."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deadline import eventually

from cordwood.cli.demo.broker_process import BrokerFailed
from cordwood.cli.demo.cluster_process import ClusterProcess


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    made = ClusterProcess(str(tmp_path / "cluster"), str(tmp_path / "cluster.log"))
    yield made
    made.close()


def test_a_chapter_that_fails_in_the_middle_leaves_no_process_behind(cluster: ClusterProcess) -> None:
    cluster.start()
    assert len(cluster.running) == 4
    cluster.kill(2)
    assert cluster.survivors.split(",") == [cluster.bootstrap_servers.split(",")[index] for index in (0, 2)]
    os.kill(cluster.supervisor_pid, signal.SIGKILL)
    cluster.close()
    eventually(lambda: not cluster.running, what="the end of all processes")


def test_a_cluster_that_does_not_start_says_why(cluster: ClusterProcess, tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "node-2").write_text("a file where the directory of a broker has to be")
    with pytest.raises(BrokerFailed, match="broker 2 ended"):
        cluster.start()
    cluster.close()
    assert not cluster.running

"""kill -9 of an import behind each step and before each change, with a real etcd; the import then goes on."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.cluster.single_node import SingleNode
from tests.cluster.test_import import cordwood, joined, told, where
from tests.etcd.members import EtcdCluster

pytestmark = pytest.mark.timeout(600)

STEPS = ("note", "reserve", "rows", "commit", "witness", "store", "done")
SERVED_AFTER = ("rows", "store")


def imported(data: Path, place: tuple[str, ...], until: str = "-1") -> int | None:
    """The number of changes; None if the process was killed."""
    command = [sys.executable, "-m", "tests.crash.importing_worker", str(data), *place[1::2], until]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if ended.returncode == -9:
        return None
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SingleNode]:
    """A single broker with content, which runs."""
    with SingleNode(tmp_path / "data") as made:
        made.fill()
        yield made


def test_an_import_goes_on_after_a_kill_at_any_point(node: SingleNode, tmp_path: Path, one_etcd: EtcdCluster) -> None:
    assert node.broker.stop() == 0
    counted = tmp_path / "counted"
    shutil.copytree(node.data, counted)
    changes = imported(counted, where(one_etcd, "counted"))
    assert changes is not None
    assert changes > len(STEPS)
    # Every fourth change: tests/unit/broker/importing has all of them, in one process and without etcd.
    for point in (*STEPS, *map(str, range(1, changes, 4))):
        data, place = tmp_path / f"killed-{point}", where(one_etcd, f"killed-{point}")
        shutil.copytree(node.data, data)
        assert imported(data, place, point) is None
        if point in STEPS[:-1]:
            refused = cordwood("serve", "--data-dir", str(data), "--listen", "127.0.0.1:0")
            assert "was begun, and has not ended" in refused.stderr, (point, refused.stderr)
        if point in STEPS:
            assert told("cluster", "import", str(data), *place, "--yes")["state"] == "imported", point
        else:
            assert imported(data, place) is not None
        assert not (data / "metadata.sqlite").exists()
        assert (data / "imported-metadata.sqlite").exists()
        if point in SERVED_AFTER:
            with BrokerProcess(data, options=(*place, "--node-id", "1")) as broker:
                node.check(broker.bootstrap)
        shutil.rmtree(data)


def test_clients_go_on_after_an_import_that_was_killed_at_its_commit(node: SingleNode, one_etcd: EtcdCluster) -> None:
    place = where(one_etcd, "clients-go-on")
    assert node.broker.stop() == 0
    assert imported(node.data, place, "commit") is None
    told("cluster", "import", str(node.data), *place, "--yes")
    with joined(node, place):
        node.count(2)
        node.end_transaction()
        node.check(node.broker.bootstrap)

"""`cordwood cluster import`: a single broker's directory becomes that of the first broker of a cluster on etcd."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker_process import BrokerProcess
from tests.cluster.local_cluster import CORDWOOD, clean_environment
from tests.cluster.single_node import LATEST, SingleNode
from tests.etcd.members import EtcdCluster

from cordwood.segments.dropped_deletions import FILE_NAME as DROPPED_FILE
from cordwood.segments.dropped_deletions import Dropped, encode_dropped

pytestmark = pytest.mark.timeout(300)


def cordwood(*arguments: str, bootstrap: str = "", cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*CORDWOOD, *arguments],
        env={**clean_environment(), "CORDWOOD_BOOTSTRAP": bootstrap},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        cwd=cwd,
        check=False,
    )


def told(*arguments: str, bootstrap: str = "", cwd: Path | None = None) -> Any:
    """The JSON that a command prints."""
    done = cordwood(*arguments, "--json", bootstrap=bootstrap, cwd=cwd)
    assert done.returncode == 0, f"{arguments}: {done.stderr}\n{done.stdout}"
    return json.loads(done.stdout)


def where(etcd: EtcdCluster, name: str) -> tuple[str, ...]:
    return ("--cluster", name, "--store", f"etcd://{','.join(etcd.endpoints)}")


def joined(node: SingleNode, place: tuple[str, ...]) -> BrokerProcess:
    """The same broker, at the same address, as the first of the cluster."""
    address = node.broker.address
    broker = BrokerProcess(node.data, options=(*place, "--node-id", "1"), settings={"listeners": address})
    node.broker.bootstrap = address
    return broker


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SingleNode]:
    """A single broker with content, which runs."""
    with SingleNode(tmp_path / "data") as made:
        made.fill()
        yield made


def test_a_single_broker_goes_on_as_the_first_of_a_cluster(
    node: SingleNode, tmp_path: Path, shared_etcd: EtcdCluster
) -> None:
    place = where(shared_etcd, "goes-on")
    refused = cordwood("cluster", "import", str(node.data), *place, "--yes")
    assert refused.returncode == 1, refused.stderr
    assert "in use by another broker" in refused.stderr
    assert node.broker.stop() == 0

    planned = told("cluster", "import", str(node.data), *place, "--dry-run")
    assert (planned["state"], planned["node_id"], planned["cluster_id"]) == ("planned", 1, node.cluster_id)
    assert planned["topics"] == 6, "four topics, and two of the broker's own"
    done = told("cluster", "import", str(node.data), *place, "--yes")
    assert done == {**planned, "state": "imported"}
    again = told("cluster", "import", str(node.data), *place, "--yes")
    assert again["state"] == "imported"

    alone = cordwood("serve", "--data-dir", str(node.data), "--listen", "127.0.0.1:0")
    assert alone.returncode == 1
    assert "was imported into cluster goes-on" in alone.stderr
    workers = cordwood("serve", "--workers", "2", "--data-dir", str(node.data), "--listen", "127.0.0.1:0")
    assert workers.returncode == 1
    assert "was imported into cluster goes-on" in workers.stderr

    recovered = cordwood("recover", "metadata", str(node.data))
    assert recovered.returncode == 1
    assert "was imported into cluster goes-on" in recovered.stderr

    with joined(node, place):
        node.check(node.broker.bootstrap)
        (last,) = node.count(1, again=True)
        assert last == 2, "the batch is known: it is not in the log twice"
        assert node.count(2) == [3, 4]
        node.end_transaction()
        node.check(node.broker.bootstrap)

    other = BrokerProcess(tmp_path / "other").start()
    assert other.stop() == 0
    refused = cordwood("cluster", "import", str(other.data_dir), *place, "--yes")
    assert refused.returncode == 1
    assert "is not empty" in refused.stderr
    with other:
        pass


def test_all_topics_get_three_replicas_and_survive_the_first_broker(
    node: SingleNode, tmp_path: Path, shared_etcd: EtcdCluster
) -> None:
    place = where(shared_etcd, "three")
    node.broker.kill()
    # Compaction has dropped a deletion from this log: replicas that are filled from it lack the deletion, too.
    note = encode_dropped(Dropped(mark=7, highest=0))
    (node.data / f"{LATEST}-0" / DROPPED_FILE).write_bytes(note)
    done = told("cluster", "import", str(node.data), *place, "--yes")
    assert done["state"] == "imported"
    first = joined(node, place)
    others = [
        BrokerProcess(tmp_path / f"node-{number}", options=(*place, "--node-id", str(number))) for number in (2, 3)
    ]
    try:
        # A broker that is there before the first one serves, and waits with the topics.
        for broker in (others[0], first, others[1]):
            broker.start()
        raised = cordwood("cluster", "import", str(node.data), *place, "--raise", "3", "--yes", cwd=tmp_path)
        assert raised.returncode == 0, raised.stderr
        node.end_transaction()
        node.count(2)
        status = cordwood("cluster", "status", "--exit-code", bootstrap=first.bootstrap)
        assert status.returncode == 0, status.stdout
        lacking = told(
            "cluster", "reassign", "--all", "--replication-factor", "3", "--dry-run", bootstrap=first.bootstrap
        )
        assert lacking["plan"]["partitions"] == []
        copies = [broker.data_dir / f"{LATEST}-0" / DROPPED_FILE for broker in (first, *others)]
        assert [copy.read_bytes() for copy in copies] == [note] * 3
        first.kill()
        bootstrap = ",".join(broker.bootstrap for broker in others)
        node.broker.bootstrap = others[0].bootstrap
        node.check(bootstrap, first_is_gone=True)
    finally:
        for broker in (first, *others):
            broker.end()


def test_a_directory_of_workers_is_imported(node: SingleNode, shared_etcd: EtcdCluster) -> None:
    place = where(shared_etcd, "workers")
    assert node.broker.stop() == 0
    arranged = [*CORDWOOD, "serve", "--workers", "2", "--json", "--data-dir", str(node.data), "--listen", "127.0.0.1:0"]
    supervisor = subprocess.Popen(arranged, stdout=subprocess.PIPE, env=clean_environment())
    assert supervisor.stdout is not None
    try:
        assert supervisor.stdout.readline()
    finally:
        supervisor.terminate()
        supervisor.wait(60)
    assert (node.data / "workers").is_dir()
    told("cluster", "import", str(node.data), *place, "--yes")
    assert not (node.data / "workers").exists()
    with joined(node, place):
        node.check(node.broker.bootstrap)
        node.count(1)
        node.end_transaction()
        node.check(node.broker.bootstrap)


def test_an_import_that_was_begun_keeps_brokers_away_and_can_be_given_up(
    tmp_path: Path, shared_etcd: EtcdCluster
) -> None:
    place = where(shared_etcd, "given-up")
    data = tmp_path / "data"
    broker = BrokerProcess(data).start()
    assert broker.stop() == 0
    begun = [*CORDWOOD[:1], "-m", "tests.crash.importing_worker", str(data), *place[1::2], "rows"]
    killed = subprocess.run(begun, capture_output=True, text=True, timeout=60, check=False)
    assert killed.returncode == -9, killed.stderr

    for options in ((), (*place, "--node-id", "1")):
        refused = cordwood("serve", "--data-dir", str(data), "--listen", "127.0.0.1:0", *options)
        assert refused.returncode == 1
        assert "was begun, and has not ended" in refused.stderr
    fresh = cordwood(
        "serve", "--data-dir", str(tmp_path / "fresh"), "--listen", "127.0.0.1:0", *place, "--node-id", "2"
    )
    assert fresh.returncode == 1
    assert "is being imported into this cluster" in fresh.stderr
    note = (data / "cluster-import").read_bytes()
    (data / "cluster-import").write_bytes(note[:-3])
    damaged = cordwood("cluster", "import", str(data), *place, "--yes")
    assert damaged.stderr.startswith(f"error: {data}/cluster-import is damaged")
    (data / "cluster-import").write_bytes(note)
    elsewhere = cordwood("cluster", "import", str(data), *where(shared_etcd, "elsewhere"), "--yes")
    assert "was begun with --cluster given-up" in elsewhere.stderr

    assert told("cluster", "import", str(data), *place, "--give-up")["state"] == "given up"
    with BrokerProcess(data):
        pass
    shutil.rmtree(tmp_path / "fresh")
    with BrokerProcess(tmp_path / "fresh", options=(*place, "--node-id", "2")):
        pass

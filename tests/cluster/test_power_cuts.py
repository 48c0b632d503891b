"""Three real brokers whose machines all lose their power, by what is in their files: what one of them has is kept."""

import struct
from pathlib import Path

import pytest
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_known_disks import NEVER, SUPERVISED, create
from tests.cluster.test_leader_killed import all_in_sync, consume, produce
from tests.deadline import eventually

from cordwood.broker.storage.cluster_witness import read_seen, write_seen

BATCH_BEGINS = struct.Struct(">qi")
"""The first offset of a batch, and how many bytes follow."""
pytestmark = pytest.mark.timeout(200)


def find_another_boot(cluster: LocalCluster, node_id: int) -> None:
    """Has the broker find at its start that its machine was started again since it was killed."""
    directory = str(cluster.directory / f"node-{node_id}")
    seen = read_seen(directory)
    assert seen is not None
    write_seen(directory, seen._replace(boot_id="an earlier run of the machine"))


def lose_tail(cluster: LocalCluster, node_id: int, topic: str) -> None:
    """Cuts a log behind its first batch, as a power cut does with records that are in the page cache alone."""
    (path,) = (cluster.directory / f"node-{node_id}" / f"{topic}-0").glob("*.log")
    with path.open("r+b") as file:
        _, length = BATCH_BEGINS.unpack(file.read(BATCH_BEGINS.size))
        file.truncate(BATCH_BEGINS.size + length)


def start_again(cluster: LocalCluster, node_id: int) -> None:
    cluster.restart(node_id)
    eventually(
        lambda: cluster.log_of(node_id).count("cordwood ready"),
        to_be=2,
        what="a broker's start",
    )


def test_records_that_one_of_three_machines_kept_are_kept_when_all_lost_their_power(tmp_path: Path) -> None:
    # The last one to come back stayed in the in-sync set.
    topic, keeper, order = "orders", 2, (2, 3, 1)
    values = [f"{number:03d}".ljust(100, ".") for number in range(300)]
    with LocalCluster(tmp_path / "data", *SUPERVISED, *NEVER) as cluster:
        create(cluster, topic, **{"ack.durability": "os", "min.insync.replicas": "2"})
        for first in range(0, len(values), 30):
            produce(cluster, topic, values[first : first + 30])
        for node_id in order:
            cluster.kill(node_id)
            find_another_boot(cluster, node_id)
            if node_id != keeper:
                lose_tail(cluster, node_id, topic)
        for node_id in order:
            start_again(cluster, node_id)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        assert consume(cluster, topic, len(values)) == values

"""Kafka Streams and Kafka's Java client at work while an operator moves partitions, changes the number of workers, or
imports the directory of a single broker into a cluster."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from tests.broker_process import BrokerProcess
from tests.cluster.local_cluster import is_alive
from tests.cluster.test_import import cordwood, told, where
from tests.cluster.test_moves import cordwood as on_cluster
from tests.cluster.test_moves import replicas
from tests.cluster.test_workers import LocalWorkers, free_range
from tests.deadline import eventually
from tests.etcd.finding import NoEtcd, find_etcd
from tests.etcd.members import EtcdCluster
from tests.interop_software.stage import Stage, Unavailable

NODES = 4
MOST_WORKERS = 3
WORKERS = (3, 1, 2)
"""After two workers, one of which dies."""


class Software(Protocol):
    """Other people's software on a broker or a cluster."""

    def working(self) -> AbstractContextManager[None]:
        """It works during the block, and is judged at its end."""

    def interrupt(self) -> None:
        """It is killed, if it can be started again later."""

    def go_on(self) -> None:
        """It is started if it does not run, and does some more work."""


Start = Callable[[Stage, str, int], Software]
"""On these bootstrap servers, with so many replicas."""


def moved(stage: Stage, start: Start) -> None:
    """Each broker of four is drained, filled again by undoing that, and all are rebalanced."""
    cluster = stage.cluster(NODES)
    with start(stage, cluster.bootstrap, 3).working():
        for node_id in range(1, NODES + 1):
            undo = f"undo-{node_id}.json"
            drained = on_cluster(cluster, "cluster", "drain", str(node_id), "--yes", "--undo-file", undo)
            assert drained["moved"] > 0
            assert replicas(cluster)[node_id] == 0
            on_cluster(cluster, "cluster", "uncordon", str(node_id))
            if node_id % 2:
                on_cluster(cluster, "cluster", "reassign", "--file", undo, "--yes", "--throttle", "50MiB")
                assert replicas(cluster)[node_id] == drained["moved"]
            else:
                on_cluster(cluster, "cluster", "rebalance", "--yes", "--sample", "0")
                assert replicas(cluster)[node_id] > 0


def workers(stage: Stage, start: Start) -> None:
    """A worker dies by kill -9, then the number of workers changes, also by kill -9 of all of them."""
    base = free_range(MOST_WORKERS)
    servers = ",".join(f"127.0.0.1:{base + place}" for place in range(MOST_WORKERS))

    def begin(count: int) -> LocalWorkers:
        return stage.enter(LocalWorkers(stage.path / "workers", count, "--set", f"listeners=127.0.0.1:{base}"))

    running = begin(2)
    software = start(stage, servers, 1)
    with software.working():
        for worker in (1, 2):
            running.kill(worker)
            again = re.compile(rf"worker {worker} \(pid \d+\) serves again")
            eventually(lambda again=again: again.search(running.said), what="its second life")  # type: ignore[misc]
        assert running.stop() == 0
        running = begin(WORKERS[0])
        software.go_on()
        running.supervisor.kill()
        eventually(lambda: not any(map(is_alive, running.pids.values())), what="the end of all workers")
        for count in WORKERS[1:]:
            running = begin(count)
            software.go_on()
            assert running.stop() == 0
        begin(MOST_WORKERS)


def imported(stage: Stage, start: Start) -> None:
    """The directory of a single broker becomes that of the first of three, and all topics get three replicas."""
    try:
        etcd = stage.enter(EtcdCluster(find_etcd(), stage.path / "etcd"))
    except NoEtcd as reason:
        raise Unavailable(str(reason)) from reason
    place = where(etcd, "grown")
    alone = stage.broker("first")
    address = alone.bootstrap
    software = start(stage, address, 1)
    with software.working():
        software.interrupt()
        assert alone.stop() == 0
        assert told("cluster", "import", str(alone.data_dir), *place, "--yes")["state"] == "imported"
        brokers = [
            BrokerProcess(
                stage.path / ("first" if number == 1 else f"broker-{number}"),
                options=(*place, "--node-id", str(number)),
                settings={"listeners": address} if number == 1 else {},
            )
            for number in (1, 2, 3)
        ]
        for broker in brokers:
            stage.enter(broker)
        software.go_on()
        raised = cordwood("cluster", "import", str(alone.data_dir), *place, "--raise", "3", "--yes", cwd=stage.path)
        assert raised.returncode == 0, raised.stderr
        software.go_on()

"""Clusters of three nodes behind one interface: start, stop, kill, freeze and bring back nodes.

A machine of Cordwood's cluster is a broker and a member of etcd; a machine of Kafka's is one process, broker and
controller. Both have the default settings of their time-outs: Cordwood's lease, etcd's election, Kafka's session. What
a cluster uses is what all its processes use, etcd's members included.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tests.etcd.finding import find_etcd
from tests.etcd.members import EtcdCluster, EtcdMember

from benchmarks.figures import CORDWOOD, KAFKA
from benchmarks.kafka_peer import KafkaBroker, KafkaJars, new_cluster_id
from benchmarks.systems import CordwoodSystem, Durability, KafkaSystem, System, SystemFailed
from cordwood.client.errors import BrokerUnreachable
from cordwood.client.link import Link
from cordwood.client.settings import Address, ClientSettings
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.api_types import KeyOf, Response

NODES = (1, 2, 3)
MIN_IN_SYNC = {"min.insync.replicas": "2"}
START_WITHIN_S = 90.0
EVIDENCE_AGAIN_S = 61.0
"""Cordwood's brokers end the lease of a broker whose process is gone at most once a minute, so that one that cannot
stay up does no harm. A benchmark that kills one broker more often would measure that rule."""
_ETCD_DEFAULTS = ("--heartbeat-interval=100", "--election-timeout=1000")
_CLUSTER = "bench"
_FETCHED = re.compile(r'^cordwood_response_bytes_total\{api="Fetch"\} (\S+)$', re.MULTILINE)


def lasting_ports(count: int) -> list[int]:
    """Free ports below those that the kernel gives to connections: a node that comes back finds its port free."""
    free: list[int] = []
    for port in random.sample(range(15_000, 32_000), 1000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            free.append(port)
        if len(free) == count:
            return free
    raise SystemFailed("there are not enough free ports")


class Role(Enum):
    """Which machine a fault meets."""

    PLAIN = "one that is no controller"
    CONTROLLER = "the controller"
    STORE_LEADER = "the one with the leader of the metadata's quorum"


class Cluster(System, Protocol):
    """Three nodes."""

    @property
    def addresses(self) -> Mapping[int, Address]: ...
    def machine_of(self, role: Role) -> int: ...
    def rest_needed_s(self, node: int) -> float:
        """How long to wait until a fault of this node is measured as a first one."""

    def kill(self, node: int, *, with_store_leader: bool = False) -> float:
        """kill -9 of a broker, together with the leader of the metadata's quorum if asked. Returns when that was, on
        the clock of time.monotonic()."""

    def lose(self, node: int) -> float:
        """Freezes all processes of a machine: their connections stay open, and nobody answers."""

    def bring_back(self, node: int) -> None:
        """Starts or thaws what runs on the machine, without waiting for its replicas."""

    def processes_by_kind(self) -> Mapping[str, Sequence[int]]:
        """Process ids: `brokers`, and `etcd` where there is one."""


class _Nodes:
    """What both clusters have in common. `pid` is not one process: who measures takes `pids`."""

    replicas = 3

    def __init__(self, directory: Path, nodes: Sequence[int] = NODES) -> None:
        self.directory = directory
        self.nodes = list(nodes)
        self.addresses: dict[int, Address] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(map(str, self.addresses.values()))

    @property
    def data(self) -> Path:
        return self.directory

    def _wait_for_nodes(self, tail: Callable[[], str]) -> None:
        deadline_s = time.monotonic() + START_WITHIN_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(BrokerUnreachable):
                # Metadata names brokers that are fenced, too, while no broker takes part yet.
                seen = [
                    len(_ask(address, ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": 1}).brokers)
                    for address in self.addresses.values()
                ]
                if seen == [len(self.nodes)] * len(self.nodes):
                    return
            time.sleep(0.1)
        raise SystemFailed(f"the cluster is not whole after {START_WITHIN_S:g} s:\n{tail()}")


class KafkaCluster(_Nodes):
    """Three combined processes. The controller of the quorum leads the metadata."""

    name = KAFKA

    def __init__(self, directory: Path, jars: KafkaJars) -> None:
        super().__init__(directory)
        free = lasting_ports(2 * len(NODES))
        ports = dict(zip(NODES, zip(free[::2], free[1::2], strict=True), strict=True))
        voters = ",".join(f"{node}@127.0.0.1:{controller}" for node, (_, controller) in ports.items())
        cluster_id = new_cluster_id()
        self.label = f"Kafka {jars.version}, 3 nodes"
        self._brokers: dict[int, KafkaBroker] = {}
        self._frozen: set[int] = set()
        for node, (port, controller_port) in ports.items():
            settings = {
                "node.id": str(node),
                "controller.quorum.voters": voters,
                "offsets.topic.replication.factor": "3",
                "transaction.state.log.replication.factor": "3",
                "transaction.state.log.min.isr": "2",
                "auto.create.topics.enable": "false",
                # Deleted topics give their space back at once, so that a long run does not fill the disk.
                "log.segment.delete.delay.ms": "100",
            }
            self._brokers[node] = KafkaBroker(
                jars,
                directory / f"node-{node}",
                settings=settings,
                port=port,
                controller_port=controller_port,
                cluster_id=cluster_id,
            )
            self.addresses[node] = Address("127.0.0.1", port)

    @property
    def pid(self) -> int:
        return self.pids[0]

    @property
    def pids(self) -> Sequence[int]:
        return [broker.pid for broker in self._brokers.values() if broker.alive]

    @property
    def alive(self) -> bool:
        return all(broker.alive for broker in self._brokers.values())

    def start(self, *, wait: bool = True) -> None:
        for broker in self._brokers.values():
            broker.format()
        for broker in self._brokers.values():
            broker.start(wait=False)
        if wait:
            self._wait_for_nodes(self.tail)

    def stop(self) -> None:
        """Kills all: a controlled shutdown of a node waits for the others, which are leaving too."""
        for broker in self._brokers.values():
            broker.kill()

    def tail(self) -> str:
        return "\n".join(broker.tail(300) for broker in self._brokers.values())

    def topic_settings(self, durability: Durability) -> dict[str, str]:
        return {**MIN_IN_SYNC, **KafkaSystem.durability(durability)}

    def machine_of(self, role: Role) -> int:
        quorum = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
        (topic,) = _ask(self.addresses[1], ApiKey.DESCRIBE_QUORUM, quorum).topics
        controller = topic.partitions[0].leader_id
        return controller if role is not Role.PLAIN else next(node for node in NODES if node != controller)

    def rest_needed_s(self, node: int) -> float:
        return 0.0

    def kill(self, node: int, *, with_store_leader: bool = False) -> float:
        began_s = time.monotonic()
        self._brokers[node].kill()
        return began_s

    def lose(self, node: int) -> float:
        began_s = time.monotonic()
        os.kill(self._brokers[node].pid, signal.SIGSTOP)
        self._frozen.add(node)
        return began_s

    def bring_back(self, node: int) -> None:
        if node in self._frozen:
            self._frozen.remove(node)
            os.kill(self._brokers[node].pid, signal.SIGCONT)
        else:
            self._brokers[node].start(wait=False)

    def processes_by_kind(self) -> Mapping[str, Sequence[int]]:
        return {"brokers": self.pids}


class CordwoodCluster(_Nodes):
    """Three brokers and three members of etcd with etcd's defaults."""

    name = CORDWOOD
    label = "Cordwood, 3 nodes"

    def __init__(
        self,
        directory: Path,
        assignments: Sequence[str] = (),
        *,
        nodes: Sequence[int] = NODES,
        metered: bool = False,
    ) -> None:
        """`metered`: the nodes count what they answer."""
        super().__init__(directory, nodes)
        self._metered = metered
        self._killed_at_s: dict[int, float] = {}
        self._etcd = EtcdCluster(find_etcd(), directory / "etcd", len(NODES), options=_ETCD_DEFAULTS)
        self._assignments = assignments
        self._brokers: dict[int, CordwoodSystem] = {}
        self._metrics: dict[int, int] = {}
        self._frozen: dict[int, EtcdMember] = {}
        self._killed: dict[int, EtcdMember] = {}

    @property
    def pid(self) -> int:
        return self.pids[0]

    @property
    def pids(self) -> Sequence[int]:
        return [pid for pids in self.processes_by_kind().values() for pid in pids]

    @property
    def alive(self) -> bool:
        return bool(self._brokers) and all(broker.alive for broker in self._brokers.values())

    def start(self, *, wait: bool = True) -> None:
        self._etcd.__enter__()
        for node in self.nodes:
            self._start_node(node)
        if wait:
            self._wait_for_nodes(self.tail)

    def _start_node(self, node: int) -> None:
        port, metrics = lasting_ports(2)
        counted = [f"metrics.listener=127.0.0.1:{metrics}"] if self._metered else []
        store = "etcd://" + ",".join(self._etcd.endpoints)
        options = ["--cluster", _CLUSTER, "--store", store, "--node-id", str(node)]
        for assignment in (*counted, *self._assignments):
            options += ["--set", assignment]
        broker = CordwoodSystem(self.directory / f"node-{node}", as_shipped=True, options=options, port=port)
        broker.start(wait=False)
        self._brokers[node] = broker
        self.addresses[node] = Address("127.0.0.1", port)
        self._metrics[node] = metrics

    def add_node(self, node: int) -> None:
        """Starts one more node, and waits until the cluster has it."""
        self.nodes.append(node)
        self._start_node(node)
        self._wait_for_nodes(self.tail)

    def fetched_bytes(self) -> float:
        """Bytes of all answers to Fetch requests of all nodes since their starts: of followers and of readers."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        total = 0.0
        for port in self._metrics.values():
            with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                text = answer.read().decode()
            total += sum(float(value) for value in _FETCHED.findall(text))
        return total

    def stop(self) -> None:
        for broker in self._brokers.values():
            broker.kill()
        self._etcd.end()

    def tail(self) -> str:
        return "\n".join(broker.tail()[-300:] for broker in self._brokers.values())

    def topic_settings(self, durability: Durability) -> dict[str, str]:
        return {**MIN_IN_SYNC, "ack.durability": durability}

    def _store_leader(self) -> EtcdMember:
        return self._etcd.leader()

    def machine_of(self, role: Role) -> int:
        controller = _ask(self.addresses[1], ApiKey.METADATA, {"topics": []}).controller_id
        store = 1 + self._etcd.members.index(self._store_leader())
        match role:
            case Role.CONTROLLER:
                return controller
            case Role.STORE_LEADER:
                return store
        others = [node for node in NODES if node not in (controller, store)]
        return min(others, key=lambda node: self._killed_at_s.get(node, 0.0))

    def rest_needed_s(self, node: int) -> float:
        return max(0.0, self._killed_at_s.get(node, -EVIDENCE_AGAIN_S) + EVIDENCE_AGAIN_S - time.monotonic())

    def kill(self, node: int, *, with_store_leader: bool = False) -> float:
        leader = self._store_leader() if with_store_leader else None
        began_s = self._killed_at_s[node] = time.monotonic()
        if leader is not None:
            self._killed[node] = leader
            os.kill(leader.pid, signal.SIGKILL)
        self._brokers[node].kill()
        if leader is not None:
            leader.kill()
        return began_s

    def lose(self, node: int) -> float:
        member = self._frozen[node] = self._etcd.members[node - 1]
        began_s = time.monotonic()
        os.kill(self._brokers[node].pid, signal.SIGSTOP)
        member.pause()
        return began_s

    def bring_back(self, node: int) -> None:
        if (killed := self._killed.pop(node, None)) is not None:
            self._etcd.restart(killed)
        if (frozen := self._frozen.pop(node, None)) is not None:
            frozen.resume()
            os.kill(self._brokers[node].pid, signal.SIGCONT)
        else:
            self._brokers[node].start(wait=False)

    def processes_by_kind(self) -> Mapping[str, Sequence[int]]:
        gone = self._killed.values()
        return {
            "brokers": [broker.pid for broker in self._brokers.values() if broker.alive],
            "etcd": [member.pid for member in self._etcd.members if member not in gone],
        }


def _ask(address: Address, key: KeyOf[Response], values: Mapping[str, object]) -> Response:
    link = Link(address, ClientSettings(str(address)))
    try:
        return link.ask(key, values)
    finally:
        link.close()

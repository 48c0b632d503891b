"""Three nodes, each a broker and a member of etcd on a disk of its own, on the loopback address or in namespaces.

Another tenant writes to that etcd all the time.

Owns the processes, disks and links. Promises that all of them are gone at the end, and that processes are ended by
their pid.
"""

import contextlib
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.broker_process import BrokerProcess
from tests.cluster.faults.switch import Link, Network, Slow, address_of
from tests.crash.mounts import LoopDisk
from tests.deadline import eventually
from tests.etcd.finding import Etcd
from tests.etcd.members import EtcdCluster, EtcdMember, Place
from tests.etcd.tenant import Tenant

from cordwood.administration.cluster.view import PartitionState, cluster_view, partitions_of
from cordwood.administration.connection import Connection
from cordwood.client.settings import Address
from cordwood.model.failure import Failure

CLIENTS = 0
"""The place of clients in the network; nodes are at their ids."""
NODES = (1, 2, 3)
DISK_MIB = 600
HEAL_WITHIN_S = 90.0
"""The time from which on an etcd that answers must have led to partitions whose replicas are all in sync."""
HEAL_AT_ALL_WITHIN_S = 600.0
_ASK_WITHIN_S = 3.0
TRACE = re.compile(r"^Traceback|^\S*AssertionError|Task exception was never retrieved", re.MULTILINE)


class Node:
    """A machine of the stage."""

    def __init__(self, node_id: int, directory: Path, disk: LoopDisk | None) -> None:
        self.id = node_id
        self.directory = directory
        self.disk = disk
        self.boot = directory / "boot-id"
        self.broker: BrokerProcess
        self.member: EtcdMember
        self.new_boot()

    @property
    def data(self) -> Path:
        """What is on the node's disk."""
        return self.disk.path if self.disk is not None else self.directory

    @property
    def unreadable(self) -> Path:
        """While this file exists, the broker's reads of files fail."""
        return self.boot.with_name(f"{self.boot.name}.unreadable")

    def new_boot(self) -> None:
        self.boot.write_text(f"{uuid.uuid4()}\n")


class Stage:
    """A running cluster that faults can be done to.

    Processes are started only by the thread that made the stage: the kernel ends them with it.
    """

    def __init__(
        self, directory: Path, etcd: Etcd, *, namespaces: bool, disks: bool, say: Callable[[str], None]
    ) -> None:
        self.directory = directory
        self._etcd = etcd
        self._say = say
        self._disks = disks
        self._ending = contextlib.ExitStack()
        self.network: Network | None = None
        self._dropped: set[Link] = set()
        self._slow: dict[Link, Slow] = {}
        self.nodes: list[Node] = []
        self.members: EtcdCluster
        self._tenant: Tenant
        self.unexpected: list[str] = []
        """Processes that ended by themselves, and traces in what brokers said."""
        self._traces: dict[int, int] = {}
        self._namespaces = namespaces

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as ending:
            self._build(ending)
            self._ending = ending.pop_all()
        return self

    def _build(self, ending: contextlib.ExitStack) -> None:
        if self._namespaces:
            self.network = Network(1 + len(NODES))
            ending.callback(self.network.close)
            self.network.enter(CLIENTS)
        for node_id in NODES:
            directory = self.directory / f"node-{node_id}"
            directory.mkdir()
            disk = LoopDisk(directory, DISK_MIB) if self._disks else None
            if disk is not None:
                ending.callback(disk.destroy)
            self.nodes.append(Node(node_id, directory, disk))
        places = [Place(node.data, self._host(node), self._command(node)) for node in self.nodes]
        options = () if not self._disks else ("--heartbeat-interval=50", "--election-timeout=500")
        self.members = EtcdCluster(self._etcd, self.directory, options=options, places=places)
        ending.callback(self.members.end)
        self.members.__enter__()
        for node, member in zip(self.nodes, self.members.members, strict=True):
            node.member = member
        self._tenant = ending.enter_context(Tenant(self.members.endpoints))
        store = f"etcd://{','.join(self.members.endpoints)}"
        for node in self.nodes:
            program = (
                *(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []),
                *self._command(node),
                *(sys.executable, "-m", "tests.cluster.faults.on_a_boot", str(node.boot)),
            )
            node.broker = BrokerProcess(
                node.data / "broker",
                output=node.directory / "broker.log",
                keep_port=True,
                program=program,
                options=("--cluster", "stage", "--store", store, "--node-id", str(node.id)),
                host=self._host(node),
            )
            ending.callback(node.broker.kill)
        self.start_brokers()

    def start_brokers(self) -> None:
        for node in self.nodes:
            node.broker.launch()
        for node in self.nodes:
            node.broker.wait_ready()
        self.wait_healed()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def _host(self, node: Node) -> str:
        return "127.0.0.1" if self.network is None else address_of(node.id)

    def _command(self, node: Node) -> tuple[str, ...]:
        return () if self.network is None else self.network.command_at(node.id)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.broker.address for node in self.nodes)

    def node(self, node_id: int) -> Node:
        return self.nodes[node_id - 1]

    # Links.

    def drop(self, links: Iterable[Link]) -> None:
        self._dropped |= set(links)
        self._set_links()

    def slow(self, links: Iterable[Link], how: Slow) -> None:
        self._slow |= dict.fromkeys(links, how)
        self._set_links()

    def mend(self, links: Iterable[Link]) -> None:
        for link in links:
            self._dropped.discard(link)
            self._slow.pop(link, None)
        self._set_links()

    def _set_links(self) -> None:
        assert self.network is not None
        self.network.set(dropped=self._dropped, slow=self._slow)

    # Processes.

    def launch_broker(self, node: Node) -> None:
        """Starts the broker if it does not run, and does not wait for it."""
        if not node.broker.alive:
            node.broker.kill()
            node.broker.launch()

    def launch_member(self, node: Node) -> None:
        if not node.member.alive:
            node.member.kill()
            self.members.launch(node.member)

    def wait_running(self) -> None:
        """Waits until all members of etcd and all brokers serve. Brokers that gave up without etcd start again."""
        for node in self.nodes:
            node.member.wait_healthy()
        for node in self.nodes:
            eventually(partial(self._ready_words, node), to_be="ready", what=f"broker {node.id}")

    def _ready_words(self, node: Node) -> str:
        """ "ready", or the last that a broker said; one that ended starts again."""
        if node.broker.is_ready():
            return "ready"
        if not node.broker.alive:
            self._say(f"  broker {node.id} ended with {node.broker.exit_code} and is started again")
            self.launch_broker(node)
        return node.broker.output()[-2000:]

    def wait_serving(self, node: Node) -> None:
        """Waits until another broker's metadata shows that the broker takes part. Brokers that gave up start again."""
        others = ",".join(each.broker.address for each in self.nodes if each is not node)

        def serves() -> bool:
            self.launch_broker(node)
            with contextlib.suppress(Failure):
                view = cluster_view(Connection(others, _ASK_WITHIN_S))
                return any(each.node_id == node.id and not each.fenced for each in view.nodes)
            return False

        eventually(serves, what=f"the return of broker {node.id}")

    def etcd_leader(self) -> Node:
        leader = self.members.leader()
        return next(node for node in self.nodes if node.member is leader)

    def controller(self) -> Node:
        found = eventually(self._controller, what="a controller")
        assert found is not None
        return found

    def _controller(self) -> Node | None:
        try:
            view = cluster_view(Connection(self.bootstrap, _ASK_WITHIN_S))
        except Failure:
            return None
        return next((self.node(node.node_id) for node in view.nodes if node.controller), None)

    def partitions(self, node: Node) -> list[PartitionState]:
        """As this node's broker knows them. Raises Failure."""
        host, _, port = node.broker.address.rpartition(":")
        return partitions_of(Address(host, int(port)), (), _ASK_WITHIN_S)

    def leader(self, topic: str, partition: int) -> Node:
        def known() -> Node | None:
            for node in self.nodes:
                with contextlib.suppress(Failure):
                    for each in self.partitions(node):
                        if (each.topic, each.partition) == (topic, partition) and each.leader > 0:
                            return self.node(each.leader)
            return None

        found = eventually(known, what=f"the leader of {topic}-{partition}")
        assert found is not None
        return found

    def troubles(self) -> list[str]:
        """What is not as it should be, as any broker sees it; empty when all replicas are in sync."""
        found = []
        for node in self.nodes:
            try:
                known = self.partitions(node)
            except Failure as failure:
                return [f"broker {node.id}: {failure}"]
            found += [
                f"broker {node.id}: {each.topic}-{each.partition} is led by {each.leader}, in sync {each.isr}"
                for each in known
                if each.missing or each.leader < 0
            ]
        with contextlib.suppress(Failure):
            view = cluster_view(Connection(self.bootstrap, _ASK_WITHIN_S))
            found += [f"broker {node.node_id} is fenced" for node in view.nodes if node.fenced]
            found += [f"{len(view.nodes)} brokers are known"] * (len(view.nodes) != len(NODES))
        return found

    def wait_healed(self, within_s: float = HEAL_WITHIN_S) -> float:
        """Waits until every partition has its leader and all replicas in sync; the seconds that took.

        The bound counts from the last time at which etcd gave no answer: brokers cannot heal without etcd, and a busy
        disk under all members keeps etcd from electing a leader.
        """
        began = time.monotonic()
        while troubles := self.troubles():
            now = time.monotonic()
            etcd_answers_for_s = now - max(began, self._tenant.failed_s)
            assert etcd_answers_for_s < within_s, f"not healed {within_s} s after etcd came back: {troubles[:5]}"
            assert now < began + HEAL_AT_ALL_WITHIN_S, (
                f"not healed after {now - began:.0f} s, nor is etcd: {troubles[:5]}"
            )
            time.sleep(0.1)
        return time.monotonic() - began

    def look_for_the_unexpected(self, may_have_ended: Iterable[int] = ()) -> None:
        for node in self.nodes:
            if not node.broker.alive and node.id not in may_have_ended:
                self._unexpected(f"broker {node.id} ended with {node.broker.exit_code}")
            said = node.broker.output_path.read_text(errors="replace")
            traces = len(TRACE.findall(said))
            if traces > self._traces.get(node.id, 0):
                self._unexpected(f"broker {node.id} has {traces} traces in its log")
            self._traces[node.id] = traces

    def _unexpected(self, words: str) -> None:
        self._say(f"UNEXPECTED: {words}")
        self.unexpected.append(words)

    # Disks.

    def compare_replicas(self, topics: Iterable[str]) -> list[str]:
        """Where stopped brokers have other bytes in a partition of these topics than the first broker has."""
        found = []
        for topic in topics:
            for directory in sorted((self.nodes[0].data / "broker").glob(f"{topic}-*")):
                contents = [_content(node.data / "broker" / directory.name) for node in self.nodes]
                for node, content in zip(self.nodes, contents, strict=True):
                    if content != contents[0]:
                        at = _first_difference(content, contents[0])
                        sizes = f"{len(content)} and {len(contents[0])} bytes"
                        found.append(f"{directory.name} of brokers {node.id} and 1 differs at byte {at} ({sizes})")
        return found


def _content(directory: Path) -> bytes:
    """A partition's log. Where its segments begin is up to each broker."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def _first_difference(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def fill(disk: LoopDisk) -> Path:
    """Takes all of a disk's space with a file, which is returned."""
    filler = disk.path / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return filler

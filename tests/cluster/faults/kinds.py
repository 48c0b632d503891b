"""The faults: each does something to a stage, says what, and takes it back."""

import random
import shutil
import time
from pathlib import Path

from tests.cluster.faults.deposed import CutOffLeader
from tests.cluster.faults.stage import CLIENTS, NODES, Node, Stage, fill
from tests.cluster.faults.switch import Link, Slow

from cordwood.model.coordination import transaction_partition
from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC

LEASE_S = 3.0
STATE_PARTITIONS = 50
"""The partitions of __transaction_state, by default."""
ROLLING_WITHIN_S = 60.0


class Fault:
    """One fault. `start` chooses a victim and says what it did; `stop` takes it back and starts what ended."""

    name = ""
    needs_network = False
    needs_disks = False
    loses_storage = False
    """Such a fault begins only when all replicas are in sync, and is alone: two of them at once may lose records."""
    holds_s = (4.0, 8.0)

    def __init__(self, stage: Stage, chance: random.Random, topic: str) -> None:
        self.stage = stage
        self.chance = chance
        self.topic = topic
        self.victims: set[int] = set()
        """The nodes whose processes end by this fault."""

    def start(self) -> str:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def leader(self) -> Node:
        """Of the first partition; any node, if another fault has ended the leader."""
        leader = self.stage.leader(self.topic, 0)
        return leader if leader.broker.alive else self.any_node()

    def any_node(self) -> Node:
        return self.chance.choice([node for node in self.stage.nodes if node.broker.alive])

    def links_of(self, node: Node, *, clients: bool) -> list[tuple[Link, Link]]:
        """From the node and to the node."""
        others = [other for other in NODES if other != node.id] + [CLIENTS] * clients
        return [((node.id, other), (other, node.id)) for other in others]


class _Killed(Fault):
    def kill(self, node: Node) -> None:
        node.broker.kill()
        self.victims.add(node.id)

    def stop(self) -> None:
        for node_id in sorted(self.victims):
            self.stage.launch_broker(self.stage.node(node_id))


class LeaderKilled(_Killed):
    name = "kill-9"

    def start(self) -> str:
        node = self.leader()
        self.kill(node)
        return f"kill -9 of broker {node.id}, which led {self.topic}-0"


class ControllerKilled(_Killed):
    name = "controller-killed"

    def start(self) -> str:
        node = self.stage.controller()
        self.kill(node)
        return f"kill -9 of broker {node.id}, the controller"


class TwoKilled(_Killed):
    name = "two-killed"

    def start(self) -> str:
        nodes = [self.any_node()]
        self.kill(nodes[0])
        nodes.append(self.any_node())
        self.kill(nodes[1])
        return f"kill -9 of brokers {nodes[0].id} and {nodes[1].id}"


class EtcdLeaderAndBrokerKilled(_Killed):
    name = "etcd-leader-and-broker"

    def start(self) -> str:
        node = self.leader()
        self._member = self.stage.etcd_leader()
        self._member.member.kill()
        self.kill(node)
        return f"kill -9 of etcd's leader, on node {self._member.id}, and of broker {node.id}, which led {self.topic}-0"

    def stop(self) -> None:
        self.stage.launch_member(self._member)
        super().stop()


class EtcdWithoutQuorum(Fault):
    name = "etcd-without-quorum"
    holds_s = (6.0, 12.0)

    def start(self) -> str:
        self._nodes = self.chance.sample([node for node in self.stage.nodes if node.member.alive], 2)
        for node in self._nodes:
            node.member.kill()
        return f"kill -9 of etcd's members on nodes {self._nodes[0].id} and {self._nodes[1].id}"

    def stop(self) -> None:
        for node in self._nodes:
            self.stage.launch_member(node)


class EtcdLongWithoutQuorum(EtcdWithoutQuorum):
    """Longer than any lease, and than every wait of a broker for its store."""

    name = "etcd-minute-without-quorum"
    holds_s = (60.0, 70.0)


class CoordinatorKilled(_Killed):
    """At any moment of a transaction: its producers never rest."""

    name = "coordinator-killed"
    holds_s = (0.2, 2.0)

    def start(self) -> str:
        act = self.topic.rpartition("-")[2]
        name = self.chance.choice(
            [f"payments-{act}-transactional-0", f"payments-{act}-transactional-1", f"copies-{act}-copier"]
        )
        node = self.stage.leader(TRANSACTION_STATE_TOPIC, transaction_partition(name, STATE_PARTITIONS))
        if not node.broker.alive:
            node = self.any_node()
        time.sleep(self.chance.uniform(0, 0.2))
        self.kill(node)
        return f"kill -9 of broker {node.id}, which coordinated {name}"


class ReadErrors(_Killed):
    """One broker cannot read its disk, and another dies and comes back meanwhile, for which the first is not needed."""

    name = "read-errors"

    def start(self) -> str:
        self._node = node = self.stage.controller() if self.chance.random() < 0.5 else self.leader()
        node.unreadable.touch()
        time.sleep(self.chance.uniform(0, 3))
        others = [each for each in self.stage.nodes if each is not node and each.broker.alive]
        if others:
            self.kill(self.chance.choice(others))
        return f"reads of broker {node.id} fail with EIO, and kill -9 of brokers {sorted(self.victims)}"

    def stop(self) -> None:
        super().stop()
        try:
            for node_id in sorted(self.victims):
                self.stage.wait_serving(self.stage.node(node_id))
        finally:
            self._node.unreadable.unlink()
            if not self._node.broker.alive:
                self.stage.launch_broker(self._node)


class Paused(Fault):
    name = "paused"

    def start(self) -> str:
        self._node = self.leader() if self.chance.random() < 0.7 else self.any_node()
        # A pause shorter than the lease elects nobody, and ends in the middle of what was under way.
        self._seconds = self.chance.choice((1.5, LEASE_S, None))
        self._whole = self.chance.random() < 0.5 and self._node.member.alive
        self._node.broker.freeze()
        if self._whole:
            self._node.member.pause()
        if self._seconds is not None:
            time.sleep(self._seconds)
            self._resume()
        words = "until the fault ends" if self._seconds is None else f"for {self._seconds} s"
        return f"SIGSTOP of broker {self._node.id}{' and its etcd' * self._whole} {words}"

    def _resume(self) -> None:
        # A second fault may have ended what this one stopped.
        if self._node.broker.alive:
            self._node.broker.thaw()
        if self._whole and self._node.member.alive:
            self._node.member.resume()

    def stop(self) -> None:
        self._resume()


class RollingRestart(Fault):
    name = "rolling-restart"
    holds_s = (0.0, 1.0)

    def start(self) -> str:
        order = self.chance.sample(self.stage.nodes, len(self.stage.nodes))
        for node in order:
            code = node.broker.stop(ROLLING_WITHIN_S)
            assert code == 0, f"broker {node.id} ended with {code} after SIGTERM"
            self.stage.launch_broker(node)
            self.stage.wait_running()
            self.stage.wait_healed()
        return f"SIGTERM and start of brokers {', '.join(str(node.id) for node in order)}"

    def stop(self) -> None:
        pass


class _OnLinks(Fault):
    needs_network = True

    def __init__(self, stage: Stage, chance: random.Random, topic: str) -> None:
        super().__init__(stage, chance, topic)
        self._links: list[Link] = []

    def _drop(self, links: list[Link]) -> None:
        self._links = links
        self.stage.drop(links)

    def stop(self) -> None:
        self.stage.mend(self._links)


class Partition(_OnLinks):
    name = "partition"

    def start(self) -> str:
        node = self.leader() if self.chance.random() < 0.7 else self.any_node()
        clients = self.chance.random() < 0.5
        self._drop([link for pair in self.links_of(node, clients=clients) for link in pair])
        return f"node {node.id} is cut off from the other nodes{' and from clients' * clients}"


class DeposedLeader(_OnLinks):
    """A leader is cut off from the other nodes, and not from clients that insist on it."""

    name = "deposed-leader"

    def start(self) -> str:
        self._leader = leader = CutOffLeader(self.stage)
        self._drop([link for pair in self.links_of(leader.node, clients=False) for link in pair])
        self._told = told = leader.ask_until_refused()
        return (
            f"node {leader.node.id} is cut off from the other nodes: its broker served {told.reads} reads in "
            f"{told.served_s:.1f} s, and acknowledged {told.appended} records for itself alone"
        )

    def stop(self) -> None:
        super().stop()
        self._leader.check_healed(self._told)


class OneWayPartition(_OnLinks):
    name = "one-way-partition"

    def start(self) -> str:
        node = self.leader() if self.chance.random() < 0.7 else self.any_node()
        clients = self.chance.random() < 0.3
        outgoing = self.chance.random() < 0.5
        self._drop([pair[0 if outgoing else 1] for pair in self.links_of(node, clients=clients)])
        whom = "the other nodes" + " and clients" * clients
        words = f"what node {node.id} sends to {whom}" if outgoing else f"what {whom} send to node {node.id}"
        return f"{words} is dropped"


class LinkCut(_OnLinks):
    """Two nodes do not reach each other, and both reach the third."""

    name = "link-cut"

    def start(self) -> str:
        one, other = self.chance.sample(NODES, 2)
        one_way = self.chance.random() < 0.3
        self._drop([(one, other)] if one_way else [(one, other), (other, one)])
        return f"packets from node {one} to node {other}{'' if one_way else ' and back'} are dropped"


class SlowLink(_OnLinks):
    name = "slow-link"
    holds_s = (6.0, 12.0)

    def start(self) -> str:
        node = self.leader() if self.chance.random() < 0.5 else self.any_node()
        least_ms, most_ms = self.chance.choice(((20, 60), (80, 150), (200, 600)))
        self._links = [link for pair in self.links_of(node, clients=False) for link in pair]
        self.stage.slow(self._links, Slow(least_ms, most_ms))
        return f"packets between node {node.id} and the other nodes take {least_ms} to {most_ms} ms"


class DiskFull(Fault):
    name = "disk-full"
    needs_disks = True
    holds_s = (6.0, 12.0)

    def start(self) -> str:
        node = self.leader() if self.chance.random() < 0.7 else self.any_node()
        assert node.disk is not None
        self._node = node
        self._filler: Path = fill(node.disk)
        self.victims.add(node.id)
        return f"the disk of node {node.id} is full"

    def stop(self) -> None:
        self._filler.unlink()
        self.stage.launch_member(self._node)
        self.stage.launch_broker(self._node)


class PowerCut(Fault):
    name = "power-cut"
    needs_disks = True
    loses_storage = True

    def start(self) -> str:
        self._node = node = self.leader() if self.chance.random() < 0.7 else self.any_node()
        assert node.disk is not None
        self._links: list[Link] = []
        # The power fails for the processor first: nobody acknowledges what a dead disk took.
        node.broker.freeze()
        node.member.pause()
        if self.stage.network is not None:
            # A machine without power closes no connection.
            self._links = [link for pair in self.links_of(node, clients=True) for link in pair]
            self.stage.drop(self._links)
        node.disk.cut_power()
        node.broker.kill()
        node.member.kill()
        self.victims.add(node.id)
        return f"the power of node {node.id} is cut"

    def stop(self) -> None:
        node = self._node
        assert node.disk is not None
        node.disk.unmount()
        node.disk.mount()
        node.new_boot()
        if self._links:
            self.stage.mend(self._links)
        self.stage.launch_member(node)
        self.stage.launch_broker(node)


class EmptiedDisk(_Killed):
    name = "emptied-disk"
    loses_storage = True

    def start(self) -> str:
        node = self.leader() if self.chance.random() < 0.7 else self.any_node()
        self.kill(node)
        shutil.rmtree(node.data / "broker")
        return f"kill -9 of broker {node.id}, and its directory is deleted"


KINDS: tuple[type[Fault], ...] = (
    LeaderKilled,
    ControllerKilled,
    TwoKilled,
    EtcdLeaderAndBrokerKilled,
    EtcdWithoutQuorum,
    EtcdLongWithoutQuorum,
    CoordinatorKilled,
    ReadErrors,
    Paused,
    RollingRestart,
    Partition,
    DeposedLeader,
    OneWayPartition,
    LinkCut,
    SlowLink,
    DiskFull,
    PowerCut,
    EmptiedDisk,
)

"""The demo's chapter on a cluster: the leader of a replicated partition is killed while a producer writes."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.administration.cluster.view import ClusterView, PartitionState, cluster_view, partitions_of
from cordwood.administration.connection import Connection
from cordwood.cli.demo.chapters import Chapter
from cordwood.cli.demo.cluster_process import NODES, ClusterProcess
from cordwood.cli.demo.orders import PARTITIONS, TOPIC, Acknowledged, Shop, order_of, orders
from cordwood.cli.demo.scene import PATIENCE_S, Scene, TookTooLong, wait
from cordwood.cli.demo.stage import Stage
from cordwood.cli.demo.whole_topic import read_all, rises
from cordwood.client.settings import Address

KILL_LEADER_AFTER = 600
"""Acknowledgements before the kill."""
ACKS_AFTER_THE_KILL = 300
"""Acknowledgements of the killed leader's partition by its successor before the writing ends."""
_PAUSE_S = 0.001
"""The pause after each order, so that the kill falls into a steady stream."""


def _cluster(scene: Scene) -> None:
    stage = scene.stage
    stage.chapter("Three brokers, and kill -9 of a leader")
    scene.cluster = cluster = ClusterProcess(
        os.path.join(scene.directory, "cluster"), os.path.join(scene.directory, "cluster.log")
    )
    stage.command(f"cordwood cluster up --nodes {NODES}")
    took_s = cluster.start()
    stage.lines(cluster.said())
    if not os.path.exists(os.path.join(scene.directory, "cluster", "etcd-1")):
        stage.say("The supervising process keeps the metadata of this cluster: no etcd was found that could.")
    processes = ", ".join(f"broker {node_id} is process {pid}" for node_id, pid in cluster.pids.items())
    stage.say(f"All brokers serve after {took_s:.1f} s: {processes}.")
    stage.command(f"cordwood topic create {TOPIC} --partitions {PARTITIONS} --replication-factor {NODES}")
    _create_topic(cluster)
    shop, killed = _write_and_kill(stage, cluster)
    _show_gap(stage, shop.acknowledged, killed)
    _show_status(stage, cluster, killed)
    _count(stage, cluster, shop)
    stage.command(f"kill -TERM {cluster.supervisor_pid}")
    cluster.stop()
    stage.check("all processes of the cluster have ended", not cluster.running)


def _create_topic(cluster: ClusterProcess) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    topic = NewTopic(
        TOPIC, num_partitions=PARTITIONS, replication_factor=NODES, config={"min.insync.replicas": str(NODES - 1)}
    )
    admin.create_topics([topic], operation_timeout=PATIENCE_S)[TOPIC].result(PATIENCE_S)


class _Killed:
    """The partition whose leader is killed, its former leader, the time of the kill, and the time without a leader."""

    def __init__(self, partition: int, leader: int) -> None:
        self.partition = partition
        self.leader = leader
        self.at_s = time.monotonic()
        self.led_after_ms: float | None = None

    def look(self, cluster: ClusterProcess) -> None:
        """Notes the time at which a running broker first names another leader."""
        if self.led_after_ms is None and _partitions(cluster)[self.partition].leader not in (self.leader, -1):
            self.led_after_ms = (time.monotonic() - self.at_s) * 1000


def _write_and_kill(stage: Stage, cluster: ClusterProcess) -> tuple[Shop, _Killed]:
    """Writes orders until the successor of the killed leader has acknowledged some of them."""
    stage.say(
        "An idempotent producer with acks=all begins to write, and is never restarted. With min.insync.replicas "
        f"{NODES - 1} an event is acknowledged when at least {NODES - 1} brokers have it on disk."
    )
    shop = Shop(cluster.bootstrap_servers)
    killed: _Killed | None = None
    deadline = time.monotonic() + 2 * PATIENCE_S
    for order in orders(0, 10**9):
        shop.send(order)
        shop.poll(_PAUSE_S)
        if time.monotonic() > deadline:
            shop.finish(1)
            raise TookTooLong(f"the producer wrote on; it heard {shop.errors[-3:]}")
        if killed is None:
            if len(shop.acknowledged) >= KILL_LEADER_AFTER:
                partition = shop.acknowledged[-1].partition
                leader = _partitions(cluster)[partition].leader
                stage.command(f"kill -9 {cluster.pids[leader]}")
                cluster.kill(leader)
                killed = _Killed(partition, leader)
        else:
            killed.look(cluster)
            if killed.led_after_ms is not None and _acks_since(shop.acknowledged, killed) >= ACKS_AFTER_THE_KILL:
                break
    shop.finish(PATIENCE_S)
    assert killed is not None
    return shop, killed


def _acks_since(acknowledged: Sequence[Acknowledged], killed: _Killed) -> int:
    """Acknowledgements of the partition since the kill; only a few of them can be the killed leader's last ones."""
    since = 0
    for acked in reversed(acknowledged):
        if acked.at_s < killed.at_s:
            break
        since += acked.partition == killed.partition
    return since


def _show_gap(stage: Stage, acknowledged: Sequence[Acknowledged], killed: _Killed) -> None:
    gaps_ms = {index: _longest_gap_ms(acknowledged, index) for index in range(PARTITIONS)}
    stage.say(
        f"Broker {killed.leader} led partition {killed.partition}. Another broker led it {killed.led_after_ms:.0f} ms "
        f"after the kill. The longest time between two acknowledgements of the partition was "
        f"{gaps_ms[killed.partition]:.0f} ms: the producer pauses before it looks for the leader again."
    )
    others = "; ".join(f"partition {index}: {gap_ms:.0f} ms" for index, gap_ms in gaps_ms.items())
    stage.say(f"The longest such time of each partition: {others}.")


def _longest_gap_ms(acknowledged: Sequence[Acknowledged], partition: int) -> float:
    times_s = [acked.at_s for acked in acknowledged if acked.partition == partition]
    return max((after - before for before, after in pairwise(times_s)), default=0.0) * 1000


def _show_status(stage: Stage, cluster: ClusterProcess, killed: _Killed) -> None:
    stage.command("cordwood cluster status")
    connection = Connection(cluster.survivors, PATIENCE_S)
    wait(
        lambda: _gone(cluster_view(connection), killed.leader), f"the status tells that broker {killed.leader} is gone"
    )
    view = cluster_view(connection)
    stage.table(
        ["broker", "address", "state", "leads", "replicas"],
        [
            (
                node.node_id,
                f"{node.address[0]}:{node.address[1]}",
                ("fenced" if node.fenced else "serves") + (", controller" if node.controller else ""),
                node.leads,
                node.replicas,
            )
            for node in view.nodes
        ],
    )
    states = _partitions(cluster)
    missing = {
        trouble.partition.partition: "; ".join(map(str, trouble.missing))
        for trouble in view.troubles
        if trouble.partition.topic == TOPIC
    }
    stage.table(
        ["partition", "led by", "in sync", "not in sync"],
        [
            (state.partition, state.leader, ", ".join(map(str, state.isr)), missing.get(state.partition, "-"))
            for state in states
        ],
    )
    stage.check(
        f"broker {states[killed.partition].leader} leads partition {killed.partition} in the place of {killed.leader}",
        states[killed.partition].leader in cluster.pids.keys() - {killed.leader},
    )
    stage.check(
        "no partition lacks a leader, and each says which replica is missing",
        not view.offline and missing.keys() == set(range(PARTITIONS)),
    )


def _gone(view: ClusterView, node_id: int) -> bool:
    """True if no partition of the topic counts on the broker."""
    troubles = [trouble.partition for trouble in view.troubles if trouble.partition.topic == TOPIC]
    return len(troubles) == PARTITIONS and not any(node_id in (each.leader, *each.isr) for each in troubles)


def _count(stage: Stage, cluster: ClusterProcess, shop: Shop) -> None:
    stage.check(
        f"all {shop.sent:,} events are acknowledged",
        len(shop.acknowledged) == shop.sent and not shop.errors,
    )
    lines = read_all(cluster.survivors, "auditor")
    found = Counter(order_of(line.value.encode())["number"] for line in lines)
    stage.say(f"Read back from the brokers that are left: {len(lines):,} events, {len(found):,} different.")
    acknowledged = {acked.order.number: (acked.partition, acked.offset) for acked in shop.acknowledged}
    stage.check("no acknowledged event is lost", found.keys() >= acknowledged.keys())
    stage.check("no event is there twice: the producer is idempotent", max(found.values(), default=0) == 1)
    where = {order_of(line.value.encode())["number"]: (line.partition, line.offset) for line in lines}
    stage.check(
        "each event is at its acknowledged offset",
        all(where.get(number) == place for number, place in acknowledged.items()),
    )
    stage.check("within each key the steps are in order", rises(lines, by_key=True))


def _partitions(cluster: ClusterProcess) -> list[PartitionState]:
    """The partitions of the topic by number, as a running broker sees them."""
    host, _, port = cluster.survivors.partition(",")[0].rpartition(":")
    return sorted(partitions_of(Address(host, int(port)), [TOPIC], PATIENCE_S), key=lambda state: state.partition)


CHAPTERS = (Chapter("cluster", "The leader of a replicated partition is killed, and another broker leads.", _cluster),)

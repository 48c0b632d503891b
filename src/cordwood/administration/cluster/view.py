"""A cluster as a client sees it: its brokers, its leaders, and the partitions that lack replicas, with the reason.

DescribeCluster lists the brokers, DescribeTopicPartitions the partitions, DescribeConfigs the min.insync.replicas of
topics. The lag of a replica is the distance between the ends of its log and of its leader's log, from their brokers'
answers to DescribeLogDirs: a replica that does not reach its leader does not know its lag.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cordwood.administration.addresses import told_by
from cordwood.administration.asking import ask, describe_cluster, first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.cluster.lone_replicas import LoneTopics, fewest_of_each, lone_topics
from cordwood.administration.cluster.node_facts import PATIENCE_S, NodeFacts, facts_of
from cordwood.administration.cluster.node_versions import finalised_version
from cordwood.administration.connection import MAKE_ROOM, Connection
from cordwood.client.settings import Address
from cordwood.model.errors import ErrorCode
from cordwood.model.failure import Failure
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.describe_cluster import DescribeCluster

T = TypeVar("T")

_TOPIC = 2
"""The type of a topic in DescribeConfigs."""
_PARTITIONS_PER_PAGE = 2000
MIN_IN_SYNC = "min.insync.replicas"
_BROKER = 4
"""The type of a broker in DescribeConfigs."""
_MOST_REPLICAS = "replication.factor.max"


MANY = "*"
NOBODY_IS_COMPLETE = "no replica has every acknowledged record"
WITHHOLDS = "it keeps committed records that the leader lacks: see its log"


class NodeView(NamedTuple):
    node_id: int
    address: Address
    rack: str | None
    fenced: bool
    controller: bool
    leads: int = 0
    replicas: int = 0
    draining: bool = False
    starting: bool = False
    disk_full: bool = False
    cordoned: bool = False
    withheld: tuple[str, ...] = ()
    """Partitions (orders-0) with committed records at this broker that their leader lacks; "*": many."""
    facts: NodeFacts | None = None
    """None: the broker does not say."""

    @property
    def unreached(self) -> tuple[str, ...]:
        """The other brokers with which this one cannot speak, with the reasons."""
        return () if self.facts is None else self.facts.unreached

    @property
    def state(self) -> str:
        """The broker's part in the cluster, in a word."""
        if self.draining:
            return "draining"
        if self.fenced:
            return "starting" if self.starting else "fenced"
        return "serves"


class GoneNode(NamedTuple):
    """A node of the cluster that is not registered."""

    node_id: int
    replicas: int
    address: Address | None = None
    """The node's last address; None: no broker knows."""
    rack: str | None = None
    cordoned: bool = False


class ReplicaState(NamedTuple):
    """A replica that is not in sync, and the reason that brokers give."""

    node_id: int
    reason: str
    lag: int | None = None
    """Records between the ends of the replica and of the leader; None: unknown."""

    def __str__(self) -> str:
        behind = f", {self.lag} behind" if self.lag else ""
        return f"{self.node_id} ({self.reason}{behind})"


class PartitionState(NamedTuple):
    topic: str
    partition: int
    leader: int
    """-1: none."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    """The last replicas that had every acknowledged record, if they lost their storage; empty: they did not, or the
    broker does not say."""

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(node for node in self.replicas if node not in self.isr)


class Trouble(NamedTuple):
    """A partition in trouble."""

    partition: PartitionState
    min_in_sync: int
    missing: tuple[ReplicaState, ...]
    waits_for: str = ""
    """The reason why the partition has no leader; empty if it has one."""

    @property
    def offline(self) -> bool:
        return self.partition.leader < 0

    @property
    def below_min_in_sync(self) -> bool:
        return len(self.partition.isr) < self.min_in_sync

    @property
    def in_words(self) -> str:
        words = [f"no leader: {self.waits_for}" if self.waits_for else "no leader"] if self.offline else []
        if self.below_min_in_sync:
            words.append(f"below min.insync.replicas {self.min_in_sync}")
        return ", ".join([*words, "under-replicated"] if self.missing else words)


class ClusterView(NamedTuple):
    cluster_id: str
    nodes: tuple[NodeView, ...]
    """Registered brokers."""
    gone: tuple[GoneNode, ...]
    """Nodes that took part, or have replicas, and are not registered."""
    topics: int
    partitions: int
    troubles: tuple[Trouble, ...]
    metadata_version: int
    """The final metadata version that the asked broker knows."""
    passed_over: tuple[int, ...] = ()
    """Brokers that take part, lead nothing, and will not lead without a rebalance."""
    lone: LoneTopics | None = None

    @property
    def full_disks(self) -> list[int]:
        """The nodes whose disks have no space for records."""
        return [node.node_id for node in self.nodes if node.disk_full]

    def advice(self) -> list[str]:
        """Texts about brokers that need something, with the remedy."""
        full = (
            f"The disk of broker {node_id} is full: it refuses records. {MAKE_ROOM[0].upper()}{MAKE_ROOM[1:]}."
            for node_id in self.full_disks
        )
        idle = (
            f"Broker {node_id} leads nothing, and is the first replica of no partition: `cordwood cluster rebalance` "
            "gives it a share."
            for node_id in self.passed_over
        )
        lone = [] if self.lone is None else [f"{self.lone.in_words()}. `{self.lone.command}` adds replicas."]
        unreached = (f"Broker {node.node_id} says: {reason}." for node in self.nodes for reason in node.unreached)
        return [*full, *unreached, *idle, *lone]

    @property
    def offline(self) -> list[Trouble]:
        return [trouble for trouble in self.troubles if trouble.offline]

    @property
    def below_min_in_sync(self) -> list[Trouble]:
        return [trouble for trouble in self.troubles if trouble.below_min_in_sync]

    @property
    def under_replicated(self) -> list[Trouble]:
        return [trouble for trouble in self.troubles if trouble.missing]


def cluster_view(connection: Connection) -> ClusterView:
    """The view of the cluster. Raises Failure."""
    address, told = first_answer(brokers(connection), lambda asked: describe_cluster(asked, connection.timeout_s))
    nodes = _registered(address, told)
    partitions = partitions_of(address, (), connection.timeout_s)
    minima = _min_in_sync(address, sorted({each.topic for each in partitions}), connection.timeout_s)
    suspicious = [each for each in partitions if each.missing or each.leader < 0 or len(each.isr) < minima[each.topic]]
    lags = _lags(nodes, suspicious, connection.timeout_s)
    gone = gone_nodes(nodes, _away(address, told), partitions)
    return ClusterView(
        told.cluster_id,
        with_counts(nodes, partitions),
        gone,
        len(minima),
        len(partitions),
        tuple(trouble_of(each, minima[each.topic], nodes, lags) for each in suspicious),
        finalised_version(address, connection.timeout_s),
        passed_over(nodes, partitions),
        _lone(nodes, gone, partitions, connection.timeout_s),
    )


def _lone(
    nodes: Sequence[NodeView], gone: Sequence[GoneNode], partitions: Iterable[PartitionState], timeout_s: float
) -> LoneTopics | None:
    brokers = sum(not node.cordoned for node in nodes)
    brokers += sum(node.address is not None and not node.cordoned for node in gone)
    fewest = fewest_of_each((each.topic, len(each.replicas)) for each in partitions)
    if brokers < 2 or 1 not in fewest.values():
        return None
    return lone_topics(fewest, brokers, _most_replicas(nodes, brokers, timeout_s))


def _most_replicas(nodes: Iterable[NodeView], otherwise: int, timeout_s: float) -> int:
    """The setting of the first broker that answers."""
    patience_s = min(timeout_s, PATIENCE_S)
    for node in (node for node in nodes if node.state == "serves"):
        resource = {
            "resource_type": _BROKER,
            "resource_name": str(node.node_id),
            "configuration_keys": [_MOST_REPLICAS],
        }
        values = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        with suppress(Failure):
            (result,) = ask(node.address, ApiKey.DESCRIBE_CONFIGS, 4, values, patience_s).results
            told = [entry.value for entry in result.configs if entry.name == _MOST_REPLICAS]
            return int(told[0]) if told and told[0] is not None else otherwise
    return otherwise


def with_releases(view: ClusterView, timeout_s: float) -> ClusterView:
    """The view, with the release of each broker, and the brokers with which it cannot speak."""
    patience_s = min(timeout_s, PATIENCE_S)
    nodes = (node._replace(facts=facts_of(node.address, patience_s)) for node in view.nodes)
    return view._replace(nodes=tuple(nodes))


def trouble_of(
    partition: PartitionState,
    min_in_sync: int,
    nodes: Sequence[NodeView],
    lags: Mapping[tuple[int, str, int], int],
) -> Trouble:
    where = (partition.topic, partition.partition)
    if partition.leader < 0:
        # A replica without a leader does not learn its lag.
        lags = {}
    name = f"{partition.topic}-{partition.partition}"
    withholding = {node.node_id for node in nodes if name in node.withheld or MANY in node.withheld}
    missing = tuple(
        ReplicaState(node, WITHHOLDS) if node in withholding else explained(node, nodes, lags.get((node, *where)))
        for node in partition.missing
    )
    return Trouble(partition, min_in_sync, missing, why_no_leader(partition, nodes) if partition.leader < 0 else "")


def why_no_leader(partition: PartitionState, nodes: Iterable[NodeView]) -> str:
    """The reason why a partition has no leader. Only replicas that have every acknowledged record are elected: those of
    the last in-sync set, and eligible ones."""
    states = {node.node_id: node.state for node in nodes}
    complete = (*partition.isr, *partition.elr)
    if not complete:
        return _why_nobody_is_complete(
            partition, served=any(states.get(node) == "serves" for node in partition.replicas)
        )
    for state, words in _WAITS.items():
        if found := [node for node in complete if states.get(node) == state]:
            return words.format(broker=f"broker {found[0]}")
    if len(partition.replicas) == 1:
        return f"waits for broker {complete[0]}: it has the only replica"
    if len(complete) == 1:
        return f"waits for broker {complete[0]}: it was the last in-sync replica"
    return f"waits for {brokers_in_words(complete)}: no other replica has every acknowledged record"


def _why_nobody_is_complete(partition: PartitionState, *, served: bool) -> str:
    """The reason why no replica is complete. `served`: a replica serves, and could begin with its records."""
    command = accept_loss_command(partition.topic, partition.partition)
    if len(partition.replicas) == 1:
        why = "its only replica lost its storage, or has an older copy of it"
    elif partition.lost:
        # Other replicas may have lost their storage before, or were not in sync.
        gone = brokers_in_words(partition.lost, "and")
        why = f"the storage of {gone} is lost or an older copy, and no other replica has every acknowledged record"
    else:
        why = f"{NOBODY_IS_COMPLETE}: those that had them lost their storage, or have older copies"
    brokers = brokers_in_words(partition.lost or partition.replicas)
    if served:
        return f"{why}. Start {brokers} on the disk that it had, or {command} lets a replica begin with what it has"
    return f"{why}. Start {brokers}; if its disk is lost, then {command}"


def accept_loss_command(topic: str, partitions: int | str) -> str:
    return f"`cordwood cluster accept-loss {topic} {partitions}`"


_WAITS = {
    "serves": "the controller is about to elect {broker}",
    "fenced": "waits for {broker}, which is about to take part",
    "starting": "waits for {broker}, which is starting",
    "draining": "waits for {broker}, which is stopping: start it again",
}
"""The text about the first complete replica in each state, the most hopeful state first."""


def brokers_in_words(ids: Sequence[int], conjunction: str = "or") -> str:
    """The brokers as text: `broker 2`, `brokers 1, 2 or 3`."""
    if len(ids) == 1:
        return f"broker {ids[0]}"
    return f"brokers {', '.join(map(str, ids[:-1]))} {conjunction} {ids[-1]}"


def with_counts(nodes: Iterable[NodeView], partitions: Sequence[PartitionState]) -> tuple[NodeView, ...]:
    leads = Counter(each.leader for each in partitions)
    replicas = Counter(node for each in partitions for node in each.replicas)
    return tuple(node._replace(leads=leads[node.node_id], replicas=replicas[node.node_id]) for node in nodes)


def passed_over(nodes: Sequence[NodeView], partitions: Sequence[PartitionState]) -> tuple[int, ...]:
    """Brokers that lead nothing although there are partitions for every broker. Such brokers are the first replica of
    no partition, so that no election lets them lead: they are new, or were away while topics were made."""
    if len(partitions) < len(nodes):
        return ()
    leaders = {node for each in partitions for node in (each.leader, *each.replicas[:1])}
    serving = (node for node in nodes if node.state == "serves" and not node.cordoned)
    return tuple(node.node_id for node in serving if node.node_id not in leaders)


def gone_nodes(
    nodes: Iterable[NodeView], away: Iterable[GoneNode], partitions: Sequence[PartitionState]
) -> tuple[GoneNode, ...]:
    """The nodes without a registration, by id: those that the cluster lists, and others that have replicas."""
    registered = {node.node_id for node in nodes}
    replicas = Counter(node for each in partitions for node in each.replicas if node not in registered)
    known = {node.node_id: node for node in away}
    return tuple(
        known.get(node_id, GoneNode(node_id, 0))._replace(replicas=replicas[node_id])
        for node_id in sorted({*known, *replicas})
    )


def explained(node_id: int, nodes: Iterable[NodeView], lag: int | None) -> ReplicaState:
    """The reason why a replica is not in sync: its node is gone or fenced, its disk is full, it lags, or the metadata
    store does not show yet that it has caught up."""
    node = next((node for node in nodes if node.node_id == node_id), None)
    if node is None:
        return ReplicaState(node_id, "its node is gone")
    if node.state == "serves" and node.disk_full:
        return ReplicaState(node_id, "its disk is full", lag)
    if node.state == "serves":
        return ReplicaState(node_id, "it has caught up and is about to be in sync" if lag == 0 else "it lags", lag)
    state = "its node is stopping" if node.state == "draining" else f"its node is {node.state}"
    return ReplicaState(node_id, state, lag)


def nodes_of(address: Address, timeout_s: float) -> tuple[str, list[NodeView]]:
    """The cluster's id and its registered brokers. Raises Failure."""
    told = describe_cluster(address, timeout_s)
    return told.cluster_id, _registered(address, told)


def _away(asked: Address, told: "DescribeCluster.Response") -> list[GoneNode]:
    return [
        GoneNode(each.broker_id, 0, told_by(asked, each.host, each.port), each.rack, each.is_cordoned)
        for each in told.brokers
        if each.is_away
    ]


def _registered(asked: Address, told: "DescribeCluster.Response") -> list[NodeView]:
    return [
        NodeView(
            each.broker_id,
            told_by(asked, each.host, each.port),
            each.rack,
            each.is_fenced,
            each.broker_id == told.controller_id,
            draining=each.is_draining,
            starting=each.is_starting,
            disk_full=each.is_disk_full,
            cordoned=each.is_cordoned,
            withheld=tuple(each.withheld),
        )
        for each in sorted(told.brokers, key=lambda each: each.broker_id)
        if not each.is_away
    ]


def partitions_of(address: Address, topics: Sequence[str], timeout_s: float) -> list[PartitionState]:
    """All partitions of these topics, or of all. Raises Failure."""
    found: list[PartitionState] = []
    cursor = None
    while True:
        values = {
            "topics": [{"name": name} for name in topics],
            "response_partition_limit": _PARTITIONS_PER_PAGE,
            "cursor": cursor,
        }
        page = ask(address, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, values, timeout_s)
        for topic in page.topics:
            # A topic without partitions in the answer was deleted meanwhile.
            for each in topic.partitions:
                found.append(
                    PartitionState(
                        topic.name or "",
                        each.partition_index,
                        each.leader_id,
                        tuple(each.replica_nodes),
                        tuple(each.isr_nodes),
                        tuple(each.eligible_leader_replicas or ()),
                        tuple(each.last_known_elr or ()),
                    )
                )
        if page.next_cursor is None:
            return found
        cursor = {
            "topic_name": page.next_cursor.topic_name,
            "partition_index": page.next_cursor.partition_index,
        }


def _min_in_sync(address: Address, topics: Sequence[str], timeout_s: float) -> dict[str, int]:
    """The setting of each topic; 1 if the broker does not say."""
    resources = [
        {"resource_type": _TOPIC, "resource_name": name, "configuration_keys": [MIN_IN_SYNC]} for name in topics
    ]
    minima = dict.fromkeys(topics, 1)
    if not topics:
        return minima
    values = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    for result in ask(address, ApiKey.DESCRIBE_CONFIGS, 4, values, timeout_s).results:
        for entry in result.configs:
            if result.error_code == ErrorCode.NONE and entry.name == MIN_IN_SYNC and entry.value is not None:
                minima[result.resource_name] = int(entry.value)
    return minima


def _lags(
    nodes: Iterable[NodeView], suspicious: Sequence[PartitionState], timeout_s: float
) -> Mapping[tuple[int, str, int], int]:
    """The lags of the missing replicas, by node, topic and partition. Replicas with an unknown lag are left out."""
    logs = replica_logs(nodes, ((each, (*each.missing, each.leader)) for each in suspicious), timeout_s)
    lags: dict[tuple[int, str, int], int] = {}
    for each in suspicious:
        leader = logs.get((each.leader, each.topic, each.partition))
        for node in each.missing:
            replica = logs.get((node, each.topic, each.partition))
            if leader is not None and replica is not None and (lag := lag_behind(replica, leader)) is not None:
                lags[node, each.topic, each.partition] = lag
    return lags


def lag_behind(replica: "ReplicaLog", leader: "ReplicaLog") -> int | None:
    """The number of records that a replica lacks; None: unknown. The end of a replica that does not know the leader's
    epoch means nothing: its last records may differ from the leader's."""
    if min(replica.end_offset, leader.end_offset) < 0:
        return replica.lag or None
    if replica.last_epoch < leader.last_epoch:
        return max(leader.end_offset - replica.end_offset, 0) or None
    return max(leader.end_offset - replica.end_offset, 0)


class ReplicaLog(NamedTuple):
    """The log of a replica, as its broker reports it."""

    size_bytes: int
    lag: int
    last_epoch: int
    """The epoch of the last leader that the replica knows; -1: it knows none, or the broker does not say."""
    end_offset: int
    """-1: the broker does not say."""


def replica_logs(
    nodes: Iterable[NodeView], wanted: Iterable[tuple[PartitionState, Sequence[int]]], timeout_s: float
) -> dict[tuple[int, str, int], ReplicaLog]:
    """The logs of these replicas, by node, topic and partition. Nodes that do not answer are left out."""
    logs: dict[tuple[int, str, int], ReplicaLog] = {}
    replicas = [(each, set(ids)) for each, ids in wanted]
    for node in nodes:
        asked: dict[str, list[int]] = {}
        for each, ids in replicas:
            if node.node_id in ids:
                asked.setdefault(each.topic, []).append(each.partition)
        if not asked:
            continue
        values = {"topics": [{"topic": name, "partitions": indexes} for name, indexes in sorted(asked.items())]}
        try:
            told = ask(node.address, ApiKey.DESCRIBE_LOG_DIRS, 4, values, timeout_s)
        except Failure:
            continue
        for result in told.results:
            for topic in result.topics:
                for part in (each for each in topic.partitions if not each.is_future_key):
                    logs[node.node_id, topic.name, part.partition_index] = ReplicaLog(
                        part.partition_size, part.offset_lag, part.last_epoch, part.end_offset
                    )
    return logs

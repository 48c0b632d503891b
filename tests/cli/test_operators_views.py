"""What operators look for over all topics, groups and transactions, against a real broker. tests/cluster looks at
clusters in trouble."""

import threading
import uuid

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.cli.conftest import Cordwood
from tests.conftest import MakeTopic

from cordwood import __version__
from cordwood.administration.cluster.clients import ClientView, clients_of
from cordwood.administration.cluster.node_facts import ClientUse, NodeFacts
from cordwood.administration.cluster.view import PartitionState
from cordwood.administration.topic.by_state import Wanted
from cordwood.administration.transaction import hanging
from cordwood.administration.transaction.hanging import GRACE_MS, OpenInPartition, why_hanging
from cordwood.model.failure import ExitCode
from cordwood.model.quantities import ranges


def _commit(cordwood_cli: Cordwood, group: str, topic: str, offsets: dict[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": cordwood_cli.bootstrap})
    asked = [TopicPartition(topic, index, offset) for index, offset in offsets.items()]
    for answer in admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)]).values():
        answer.result(120)


def test_all_topics_are_described_if_none_is_named(cordwood_cli: Cordwood, make_topic: MakeTopic) -> None:
    topics = {make_topic(1), make_topic(2)}
    assert topics <= {view["name"] for view in cordwood_cli.json("topic", "describe")}
    assert topics <= set(cordwood_cli("topic", "describe", "-q").splitlines())


def test_partitions_are_listed_by_state(cordwood_cli: Cordwood, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    (node,) = cordwood_cli.json("cluster", "status")["nodes"]
    led = cordwood_cli("topic", "describe", "--led-by", node["id"], "-q").splitlines()
    assert {f"{topic}-{index}" for index in range(3)} <= set(led)
    assert [each["partition"] for each in cordwood_cli.json("topic", "describe", topic, "--led-by", node["id"])] == [
        0,
        1,
        2,
    ]
    assert cordwood_cli.json("topic", "describe", topic, "--under-replicated", "--without-leader") == []
    code, error = cordwood_cli.error("topic", "describe", f"{topic}-gone", "--without-leader")
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_state_is_that_of_the_partition() -> None:
    whole = PartitionState("t", 0, 1, (1, 2), (1, 2))
    lacking = PartitionState("t", 1, 1, (1, 2), (1,))
    offline = PartitionState("t", 2, -1, (1, 2), (2,))
    assert [Wanted(under_replicated=True).has(each) for each in (whole, lacking, offline)] == [False, True, True]
    assert [Wanted(without_leader=True).has(each) for each in (whole, lacking, offline)] == [False, False, True]
    assert [Wanted(led_by=1).has(each) for each in (whole, lacking, offline)] == [True, True, False]
    assert not Wanted().any


def test_who_leads_what_is_shown_by_broker(cordwood_cli: Cordwood, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    (row,) = [each for each in cordwood_cli.json("cluster", "leaders") if each["topic"] == topic]
    assert row["partitions"] == [0, 1, 2]
    assert f"{row['leader']}\t{topic}\t3\t0-2" in cordwood_cli("cluster", "leaders", row["leader"]).splitlines()
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"


def test_the_lag_of_all_groups_is_one_table(cordwood_cli: Cordwood, make_topic: MakeTopic) -> None:
    topic, gone = make_topic(2), make_topic(1)
    cordwood_cli("produce", topic, *"abcde", "--partition", 0)
    slow, fast = f"slow-{topic}", f"fast-{topic}"
    _commit(cordwood_cli, slow, topic, {0: 1, 1: 0})
    _commit(cordwood_cli, fast, topic, {0: 5})
    _commit(cordwood_cli, slow, gone, {0: 0})
    found = [each for each in cordwood_cli.json("group", "lag") if each["topic"] == topic]
    assert [(each["group"], each["partitions"], each["lag"], each["largest"]) for each in found] == [
        (slow, 2, 4, 4),
        (fast, 1, 0, 0),
    ]
    assert f"{fast}\tempty\t{topic}\t1\t0\t0\t-" in cordwood_cli("group", "lag", fast).splitlines()
    assert cordwood_cli("group", "lag", "-q", fast) == f"{fast}\n"
    code, error = cordwood_cli.error("group", "lag", f"{slow}x")
    assert (code, error["code"], slow in error["hint"]) == (ExitCode.NOT_FOUND, "GROUP_ID_NOT_FOUND", True)


def test_the_client_that_asks_most_comes_first(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic)
    name = f"flood-{topic}"
    flood = AdminClient({"bootstrap.servers": cordwood_cli.bootstrap, "client.id": name})
    stopped = threading.Event()

    def ask() -> None:
        while not stopped.is_set():
            flood.list_topics(timeout=10)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        found = cordwood_cli.json("client", "list", "--sample", "1")
    finally:
        stopped.set()
        asking.join()
    (client,) = [each for each in found if each["client_id"] == name]
    assert client["host"] == "127.0.0.1"
    assert client["connections"] >= 1
    assert client["requests_per_s"] > 1
    assert client["bytes_per_s"] > client["requests_per_s"]
    lines = cordwood_cli("client", "list", "--sample", "0.1", "--all").splitlines()
    assert lines[0].startswith("client id\taddress\topen\trequests/s")
    assert f"{name}\t127.0.0.1" in cordwood_cli("client", "list", "--sample", "0.1", "-q").splitlines()


def test_rates_are_of_the_time_between_two_looks_and_of_all_brokers_together() -> None:
    def facts(*uses: ClientUse) -> NodeFacts:
        return NodeFacts("1", "c", uses)

    before = {1: facts(ClientUse("a", "h", 1, 1, 100, 1000)), 2: facts(), 3: None}
    after = {
        1: facts(ClientUse("a", "h", 1, 3, 120, 1400), ClientUse("b", "h", 1, 1, 6, 60)),
        2: facts(ClientUse("a", "h", 2, 2, 10, 100)),
        3: facts(ClientUse("c", "h", 1, 1, 1_000_000, 1)),
        4: None,
    }
    a, b, c = clients_of(before, after, 2.0)
    assert a == ClientView("a", "h", 3, 5, 130, 1500, 15.0, 250.0, 2.0)
    assert (b.requests_per_s, b.requests) == (3.0, 6)
    assert (c.client_id, c.requests_per_s, c.requests) == ("c", 0.0, 1_000_000)


def test_status_has_the_release_of_each_node(cordwood_cli: Cordwood) -> None:
    (node,) = cordwood_cli.json("cluster", "status")["nodes"]
    assert node["version"] == __version__
    assert node["commit"]
    assert f"{__version__} ({node['commit'][:8]})" in cordwood_cli("cluster", "status")


@pytest.mark.parametrize(
    ("state", "open_for_ms", "idle_ms", "hangs"),
    [
        ("Ongoing", 10, 10, False),
        ("Ongoing", 1_000 + GRACE_MS, 10, False),
        ("Ongoing", 1_001 + GRACE_MS, 10, True),
        ("PrepareCommit", 1_001 + GRACE_MS, 10, True),
        ("CompleteCommit", None, 10, False),
        ("CompleteCommit", None, GRACE_MS, True),
        (None, None, 10, False),
        (None, None, GRACE_MS, True),
    ],
)
def test_a_transaction_hangs_if_nobody_will_end_it(
    state: str | None, open_for_ms: int | None, idle_ms: int, hangs: bool
) -> None:
    now_ms = 10_000_000
    opened = OpenInPartition("t", 0, 7, 0, 12, now_ms - idle_ms)
    known = None if state is None else {"state": state, "open_for_ms": open_for_ms, "timeout_ms": 1_000}
    assert bool(why_hanging(opened, known, now_ms)) == hangs


def test_an_open_transaction_has_an_age_and_hangs_only_after_its_timeout(
    cordwood_cli: Cordwood, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cordwood_cli("topic", "create", topic)
    transactional_id = f"writer-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": cordwood_cli.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(30) == 0
    (listed,) = [
        each for each in cordwood_cli.json("transaction", "list") if each["transactional_id"] == transactional_id
    ]
    assert listed["open_for_ms"] >= 0
    assert transactional_id in cordwood_cli("transaction", "list", "-q").splitlines()
    assert topic not in {each["topic"] for each in cordwood_cli.json("transaction", "list", "--hanging")}
    monkeypatch.setattr(hanging, "GRACE_MS", -1_000_000)
    ended = cordwood_cli.run("transaction", "list", "--hanging")
    assert ended.exit_code == ExitCode.PROBLEM_FOUND
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith(topic)]
    assert transactional_id in line.split("\t")
    assert "though its timeout is over" in line
    producer.abort_transaction(30)
    assert f"{topic}-0" not in cordwood_cli.run("transaction", "list", "--hanging", "-q").stdout.splitlines()

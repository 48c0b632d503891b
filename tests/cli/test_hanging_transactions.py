"""A transaction that hangs: a real client leaves it open, its coordinator loses its state, and an operator ends it.

The story is real: a broker whose __transaction_state is damaged has no coordinator; with
`coordinator.damaged.records=skip` it has one that remembers nothing.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.cli.conftest import Cordwood

from cordwood.administration.connection import Connection
from cordwood.administration.transaction import hanging, view
from cordwood.embedded import Broker, Cluster
from cordwood.model.coordination import transaction_partition
from cordwood.model.failure import ExitCode

ONE_COORDINATOR = {"transaction.state.log.num.partitions": "1"}
SKIP = {"coordinator.damaged.records": "skip"}
TWO_LISTENERS = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}
ABORT = ("transaction", "abort", "--topic", "orders", "--partition", 0, "--start-offset")


class Stage:
    """A broker with an open transaction, which can be started again without its coordinator's log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker: Broker | None = None

    def start(self, settings: Mapping[str, str]) -> Broker:
        self.broker = Broker(data_dir=self.directory, settings={**ONE_COORDINATOR, **settings})
        self.broker.start()
        return self.broker

    def forget_transactions(self, settings: Mapping[str, str]) -> Broker:
        self.stop()
        shutil.rmtree(self.directory / "__transaction_state-0")
        return self.start(settings)

    def stop(self) -> None:
        if self.broker is not None:
            self.broker.stop()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "data")
    yield stage
    stage.stop()


def leave_open(bootstrap: str) -> Producer:
    """A producer with an open transaction in orders-0, at offset 1."""
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce("orders", b"before", partition=0)
    assert plain.flush(30) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    assert producer.flush(30) == 0
    plain.produce("orders", b"behind", partition=0)
    assert plain.flush(30) == 0
    return producer


def stable_end(bootstrap: str) -> int:
    """The offset before which a reader of committed records gets records of orders-0."""
    partition = TopicPartition("orders", 0)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
    return int(asked[partition].result(120).offset)


def test_a_transaction_that_no_coordinator_knows_is_ended_by_its_place(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanging, "GRACE_MS", -1_000_000)
    producer = leave_open(stage.start({}).bootstrap_servers)
    broker = stage.forget_transactions(SKIP)
    cordwood = Cordwood(broker.bootstrap_servers)
    assert stable_end(broker.bootstrap_servers) == 1
    (found,) = _hanging(cordwood)
    assert (found["topic"], found["partition"], found["start_offset"]) == ("orders", 0, 1)
    assert found["why"] == "no coordinator knows its producer"

    dry = cordwood.run(*ABORT, 1, "--dry-run")
    assert f"the transaction of producer {found['producer_id']}, epoch 0, will be aborted in orders-0" in dry.stdout
    assert dry.stderr == "Dry run: nothing was changed.\n"
    told = cordwood.json(*ABORT, 1, "--dry-run")
    assert stable_end(broker.bootstrap_servers) == 1
    code, error = cordwood.error(*ABORT, 1)
    assert (code, error["message"]) == (
        ExitCode.USAGE,
        "aborting needs a confirmation, and there is no terminal to ask on",
    )
    assert told == {**cordwood.json(*ABORT, 1, "--yes"), "dry_run": True}
    assert stable_end(broker.bootstrap_servers) == 4, "two records, the aborted one, and its marker"
    assert _hanging(cordwood) == []
    code, error = cordwood.error(*ABORT, 1, "--yes")
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "NO_SUCH_TRANSACTION")
    assert error["hint"] == "no transaction is open in the partition"
    del producer


@pytest.mark.crash
def test_a_transaction_that_a_coordinator_ends_or_may_know_is_not_ended_by_its_place(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = stage.start({})
    producer = leave_open(broker.bootstrap_servers)
    cordwood = Cordwood(broker.bootstrap_servers)
    code, error = cordwood.error(*ABORT, 1, "--yes")
    assert (code, error["code"]) == (ExitCode.FAILED, "TRANSACTION_HAS_COORDINATOR")
    assert error["hint"] == "`cordwood transaction abort writer` aborts it"
    code, error = cordwood.error(*ABORT, 0, "--yes")
    assert (code, error["hint"]) == (ExitCode.NOT_FOUND, "open transactions begin there at 1")
    assert cordwood.error(*ABORT[:5], 7, "--start-offset", 0)[0] == ExitCode.NOT_FOUND

    # Its coordinator is away, and would come back with a restored file.
    broker = stage.forget_transactions({})
    cordwood = Cordwood(broker.bootstrap_servers)
    code, error = cordwood.error(*ABORT, 1, "--yes", "--timeout", "0.5")
    assert (code, error["code"]) == (ExitCode.FAILED, "COORDINATOR_NOT_AVAILABLE")
    assert error["message"].endswith("those of __transaction_state 0")
    monkeypatch.setattr(hanging, "GRACE_MS", -1_000_000)
    (found,) = _hanging(cordwood, "--timeout", "0.5")
    assert found["why"] == "no coordinator knows its producer, but __transaction_state 0 has no coordinator"
    assert stable_end(broker.bootstrap_servers) == 1
    del producer


@pytest.mark.crash
def test_a_listener_of_clients_refuses_and_the_listener_of_brokers_takes_it(stage: Stage) -> None:
    producer = leave_open(stage.start(TWO_LISTENERS).bootstrap_servers)
    broker = stage.forget_transactions({**TWO_LISTENERS, **SKIP})
    code, error = Cordwood(broker.listeners["CLIENTS"]).error(*ABORT, 1, "--yes")
    assert (code, error["code"]) == (ExitCode.FAILED, "CLUSTER_AUTHORIZATION_FAILED")
    assert "give the listener that brokers use among themselves as --bootstrap-server" in error["hint"]
    assert stable_end(broker.bootstrap_servers) == 1
    Cordwood(broker.listeners["BROKERS"])(*ABORT, 1, "--yes")
    assert stable_end(broker.bootstrap_servers) == 4, "two records, the aborted one, and its marker"
    del producer


@pytest.mark.crash
def test_a_cluster_that_lost_its_coordinators_log_gets_over_the_transactions_that_were_open(tmp_path: Path) -> None:
    with Cluster(nodes=2, data_dir=tmp_path, settings=ONE_COORDINATOR) as cluster:
        leave_open(cluster.bootstrap_servers)
        for broker in cluster.brokers.values():
            broker.stop()
        for lost in tmp_path.glob("node-*/__transaction_state-0"):
            shutil.rmtree(lost)
        for broker in cluster.brokers.values():
            broker.start()
        clients = Cordwood(cluster.bootstrap_servers)
        assert clients.error(*ABORT, 1, "--yes", "--timeout", "1")[1]["code"] == "COORDINATOR_NOT_AVAILABLE"
        clients("cluster", "accept-loss", "__transaction_state", 0, "--yes")
        assert clients.error(*ABORT, 1, "--yes")[1]["code"] == "CLUSTER_AUTHORIZATION_FAILED"
        assert stable_end(cluster.bootstrap_servers) == 1
        Cordwood(",".join(broker.listeners["BROKERS"] for broker in cluster.brokers.values()))(*ABORT, 1, "--yes")
        assert stable_end(cluster.bootstrap_servers) == 4


@pytest.mark.parametrize("words", [[], ["writer", "--topic", "orders"], ["--topic", "orders", "--partition", "0"]])
def test_an_id_or_a_whole_place_is_named(words: list[str]) -> None:
    code, error = Cordwood("127.0.0.1:1").error("transaction", "abort", *words)
    assert (code, error["code"]) == (ExitCode.USAGE, "USAGE")
    assert error["message"] == "give a transactional id, or all of --topic, --partition and --start-offset"


def test_a_coordinator_that_moves_while_transactions_are_listed_counts_as_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [[], [7]]
    monkeypatch.setattr(view, "_silent_coordinators", lambda connection: answers.pop(0))
    monkeypatch.setattr(view, "listed", lambda connection, states: [])
    assert view.listed_of_all(Connection("127.0.0.1:1")) == ([], [7])


@pytest.mark.parametrize("count", [1, 3, 50])
def test_every_coordinator_is_asked_for_an_id_of_its_own(count: int) -> None:
    asked = view._id_in_each(count)
    assert sorted(asked) == list(range(count))
    assert all(transaction_partition(name, count) == index for index, name in asked.items())


def _hanging(cordwood: Cordwood, *words: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(
        cordwood.run("transaction", "list", "--hanging", "--json", *words).stdout
    )
    return found

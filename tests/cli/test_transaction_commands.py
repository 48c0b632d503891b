"""`cordwood transaction` against a real broker."""

import uuid
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from tests.cli.conftest import Cordwood

from cordwood.administration.asking import ask
from cordwood.client.cluster import Cluster
from cordwood.client.families import FamilyPlan
from cordwood.client.settings import Address, ClientSettings
from cordwood.model.failure import ExitCode
from cordwood.model.families import MAX_PLAN_BYTES
from cordwood.spark.checkpoints.plans import with_query_name
from cordwood.wire.apis import ApiKey


def test_a_transaction_that_hangs_is_found_and_aborted(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic)
    transactional_id = f"writer-{uuid.uuid4().hex[:8]}"
    producer = Producer(
        {
            "bootstrap.servers": cordwood_cli.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 55_000,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"hangs", partition=0)
    assert producer.flush(30) == 0
    listed = cordwood_cli.json("transaction", "list", "--state", "Ongoing")
    assert transactional_id in [each["transactional_id"] for each in listed]
    assert transactional_id in cordwood_cli("transaction", "list")
    described = cordwood_cli.json("transaction", "describe", transactional_id)
    assert described["state"] == "Ongoing"
    assert described["open_for_ms"] is not None
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    assert "Ongoing" in cordwood_cli("transaction", "describe", transactional_id)
    code, error = cordwood_cli.error("transaction", "abort", transactional_id)
    assert (code, error["code"]) == (ExitCode.USAGE, "USAGE")
    assert "aborted" in cordwood_cli("transaction", "abort", transactional_id, "--yes")
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    left = cordwood_cli.json("transaction", "describe", transactional_id)
    assert (left["state"], left["timeout_ms"]) == ("Empty", 55_000)


def test_what_is_not_there_is_said(cordwood_cli: Cordwood) -> None:
    code, error = cordwood_cli.error("transaction", "describe", "nobody")
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "TRANSACTIONAL_ID_NOT_FOUND")
    code, error = cordwood_cli.error("transaction", "list", "--state", "Nonsense")
    assert (code, error["code"]) == (ExitCode.USAGE, "USAGE")


class TestFamilies:
    """Joined with plain requests: no client of the Kafka protocol can."""

    @pytest.fixture
    def family(self, cordwood_cli: Cordwood) -> str:
        """One that has decided a batch and has two slots joined for the next."""
        name = f"query-{uuid.uuid4().hex[:8]}"
        _ask(cordwood_cli, ApiKey.FAMILY_DECIDE, family=name, batch_id=0, commit=True, winners=[])
        for _ in range(2):
            joined = _ask(cordwood_cli, ApiKey.FAMILY_JOIN, family=name, batch_id=1, timeout_ms=60_000)
            assert joined.error_code == 0
        return name

    def _described(self, cordwood_cli: Cordwood, name: str) -> dict[str, Any]:
        (found,) = [each for each in cordwood_cli.json("transaction", "families") if each["name"] == name]
        assert name in cordwood_cli("transaction", "families", "-q").splitlines()
        return dict(found)

    def test_what_they_decided_and_who_has_joined_is_shown(self, cordwood_cli: Cordwood, family: str) -> None:
        found = self._described(cordwood_cli, family)
        assert (found["last_batch_id"], found["slots"], found["joined_slots"], found["open_slots"]) == (0, 2, 2, 0)
        assert family in cordwood_cli("transaction", "families")

    def test_the_name_of_a_query_stands_before_its_family(self, cordwood_cli: Cordwood) -> None:
        family, query = str(uuid.uuid4()), f"orders {uuid.uuid4().hex[:8]}"
        with Cluster(ClientSettings(cordwood_cli.bootstrap)) as cluster:
            text = with_query_name(b"", query, MAX_PLAN_BYTES)
            cluster.family_decide(family, 0, commit=True, plan=FamilyPlan(rows=3, text=text))
        assert self._described(cordwood_cli, family)["query"] == query
        (line,) = [line for line in cordwood_cli("transaction", "families").splitlines() if family in line]
        assert line.split(family)[0].strip() == query

    def test_slots_share_a_line_in_the_list(self, cordwood_cli: Cordwood, family: str) -> None:
        lines = [line for line in cordwood_cli("transaction", "list").splitlines() if family in line]
        assert len(lines) == 1
        assert f"family:{family}/*" in lines[0]
        assert "2 Empty" in lines[0]
        ids = [each["transactional_id"] for each in cordwood_cli.json("transaction", "list")]
        assert {f"family:{family}/0", f"family:{family}/1"} <= set(ids)

    def test_a_slot_is_aborted_with_all_others(self, cordwood_cli: Cordwood, family: str) -> None:
        assert "fenced" in cordwood_cli("transaction", "abort", f"family:{family}/0", "--yes")
        found = self._described(cordwood_cli, family)
        assert (found["last_batch_id"], found["joined_slots"], found["forgotten"]) == (0, 0, False)

    def test_one_can_be_forgotten(self, cordwood_cli: Cordwood, family: str) -> None:
        code, error = cordwood_cli.error("transaction", "forget-family", family)
        assert (code, error["code"]) == (ExitCode.USAGE, "USAGE")
        assert "2 slots were aborted" in cordwood_cli("transaction", "forget-family", family, "--yes")
        found = self._described(cordwood_cli, family)
        assert (found["forgotten"], found["joined_slots"]) == (True, 0)
        code, error = cordwood_cli.error("transaction", "forget-family", "nobody", "--yes")
        assert (code, error["code"]) == (ExitCode.NOT_FOUND, "FAMILY_NOT_FOUND")


def _ask(cordwood_cli: Cordwood, key: ApiKey, **values: Any) -> Any:
    host, port = cordwood_cli.bootstrap.split(":")
    return ask(Address(host, int(port)), key, 0, values, 60)

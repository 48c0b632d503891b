"""`cordwood transaction` against a real broker."""

import uuid

import pytest
from confluent_kafka import KafkaException, Producer
from tests.cli.conftest import Cordwood

from cordwood.cli.failure import ExitCode


def test_a_transaction_that_hangs_is_found_and_aborted(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic)
    transactional_id = f"writer-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": cordwood_cli.bootstrap, "transactional.id": transactional_id})
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
    assert cordwood_cli.json("transaction", "describe", transactional_id)["state"] == "Empty"


def test_what_is_not_there_is_said(cordwood_cli: Cordwood) -> None:
    code, error = cordwood_cli.error("transaction", "describe", "nobody")
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "TRANSACTIONAL_ID_NOT_FOUND")
    code, error = cordwood_cli.error("transaction", "list", "--state", "Nonsense")
    assert (code, error["code"]) == (ExitCode.USAGE, "USAGE")

"""`broker.log`: topics, reading a whole topic, reading committed records only, and mistaken arguments."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cordwood.embedded import Broker
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.settings.configuration import InvalidConfiguration
from cordwood.records.batch import batches_in


def transactional(broker: Broker, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    return producer


def test_topics_are_listed_with_their_partitions() -> None:
    with Broker(settings={"num.partitions": 3}) as broker:
        assert broker.log.topics() == {}
        broker.log.append("orders", None, "x")
        broker.log.append("audit", None, "x")
        assert broker.log.topics() == {"audit": 3, "orders": 3}


def test_internal_topics_are_listed_on_demand() -> None:
    with Broker() as broker:
        producer = transactional(broker, "writer")
        producer.begin_transaction()
        producer.produce("orders", b"x")
        producer.commit_transaction(30)
        assert broker.log.topics() == {"orders": 1}
        assert "__transaction_state" in broker.log.topics(internal=True)


def test_a_read_without_a_partition_gives_the_records_of_all() -> None:
    with Broker(settings={"num.partitions": 3}) as broker:
        for number in range(9):
            broker.log.append("spread", None, str(number), partition=number % 3)
        records = list(broker.log.read("spread"))
        assert [(record.partition, record.offset) for record in records] == [
            (partition, offset) for partition in range(3) for offset in range(3)
        ]
        assert sorted(record.value or b"" for record in records) == [str(number).encode() for number in range(9)]


def test_an_offset_needs_its_partition() -> None:
    with Broker() as broker:
        broker.log.append("t", None, "x")
        with pytest.raises(ValueError, match="offset needs partition"):
            list(broker.log.read("t", offset=0))


def test_a_read_begins_where_the_log_does() -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    with Broker() as broker:
        for number in range(5):
            broker.log.append("cut", None, str(number))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for done in admin.delete_records([TopicPartition("cut", 0, 3)]).values():
            done.result(120)
        assert [record.offset for record in broker.log.read("cut", 0)] == [3, 4]
        assert broker.log.start_offset("cut", 0) == 3


def test_committed_records_are_read_without_open_and_aborted_transactions() -> None:
    with Broker() as broker:
        writer, other = transactional(broker, "writer"), transactional(broker, "other")
        writer.begin_transaction()
        other.begin_transaction()
        for number in range(3):
            writer.produce("t", f"kept {number}".encode())
            other.produce("t", f"aborted {number}".encode())
            writer.flush(10)
            other.flush(10)
        other.abort_transaction(30)
        writer.commit_transaction(30)
        other.begin_transaction()
        other.produce("t", b"kept later")
        other.commit_transaction(30)
        writer.begin_transaction()
        writer.produce("t", b"open")
        writer.flush(10)
        broker.log.append("t", None, "behind the open one")
        committed = [b"kept 0", b"kept 1", b"kept 2", b"kept later"]
        assert [record.value for record in broker.log.read("t", committed=True)] == committed
        assert [record.value for record in broker.log.read("t", 0, 2, committed=True)] == committed[1:]
        assert len(list(broker.log.read("t"))) == 9
        writer.commit_transaction(30)
        assert [record.value for record in broker.log.read("t", committed=True)] == [
            *committed,
            b"open",
            b"behind the open one",
        ]


def test_many_records_go_where_single_ones_go_and_in_their_order() -> None:
    keys = [None if number % 5 == 0 else f"key {number % 7}" for number in range(405)]  # as many without as 3 * 27
    with Broker(settings={"num.partitions": 3}) as broker:
        for number, key in enumerate(keys):
            broker.log.append("one-by-one", key, str(number), headers=[("n", b"%d" % number)])
        places = broker.log.append_many(
            "at-once", ((key, str(number), [("n", b"%d" % number)]) for number, key in enumerate(keys))
        )
        expected = [record._replace(timestamp_ms=0) for record in broker.log.read("one-by-one")]
        found = [record._replace(timestamp_ms=0) for record in broker.log.read("at-once")]
        assert found == expected
        values = {(record.partition, record.offset): record.value for record in found}
        assert [values[place] for place in places] == [str(number).encode() for number in range(len(keys))]


def batch_sizes(directory: Path) -> list[int]:
    """The sizes of the batches of partition 0 of topic `t`."""
    sizes = []
    for segment in sorted((directory / "t-0").glob("*.log")):
        data = memoryview(segment.read_bytes())
        sizes += [header.size for _, header in batches_in(data)]
    return sizes


def test_batches_of_many_records_keep_to_what_the_topic_takes(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, settings={"message.max.bytes": 4096}) as broker:
        places = broker.log.append_many("t", [(None, bytes(number)) for number in range(1, 3900, 100)])
        assert [place.offset for place in places] == list(range(39))
    sizes = batch_sizes(tmp_path)
    assert max(sizes) <= 4096
    assert len(sizes) < 39


def test_a_record_that_is_too_large_is_refused_and_what_stood_before_it_is_there() -> None:
    with Broker(settings={"message.max.bytes": 4096}) as broker:
        with pytest.raises(ProtocolError) as refusal:
            broker.log.append_many("t", [(None, b"a"), (None, b"b"), (None, bytes(5000)), (None, b"c")])
        with pytest.raises(ProtocolError) as alone:
            broker.log.append("t", None, bytes(5000))
        assert refusal.value.code is alone.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert [record.value for record in broker.log.read("t")] == [b"a", b"b"]


def test_many_records_of_a_compacted_topic_are_checked_as_single_ones_are() -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for done in admin.create_topics([NewTopic("t", 1, config={"cleanup.policy": "compact"})]).values():
            done.result(60)
        assert len(broker.log.append_many("t", [("k", str(number)) for number in range(1000)])) == 1000
        with pytest.raises(ProtocolError) as refusal:
            broker.log.append_many("t", [("k", "x"), (None, "without a key")])
        assert refusal.value.code is ErrorCode.INVALID_RECORD
        assert broker.log.end_offset("t", 0) == 1000


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("ada", "a record must be a tuple of key and value, or of key, value and headers, not str"),
        (("ada",), "or of key, value and headers, not 1 elements"),
        (("ada", 5), "value must be bytes, str or None, not int"),
        (("ada", "placed", [("trace", "7")]), "the value of header 'trace' must be bytes or None, not str"),
    ],
)
def test_a_wrong_record_among_many_is_named(record: Any, message: str) -> None:
    with Broker() as broker, pytest.raises(TypeError, match=message):
        broker.log.append_many("t", [("ada", "placed"), record])


def test_many_records_meet_a_topic_that_is_not_there_as_one_does() -> None:
    with Broker(settings={"auto.create.topics.enable": False}) as broker:
        with pytest.raises(ProtocolError) as refusal:
            broker.log.append_many("t", [(None, "x")])
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(ProtocolError):
            broker.log.append_many("t", [(None, "x")], partition=7)


def test_a_broker_and_its_log_name_their_address() -> None:
    broker = Broker()
    assert repr(broker) == "<Broker at no address: the broker has not been started>"
    with broker:
        assert repr(broker) == f"<Broker at {broker.bootstrap_servers}>"
        assert repr(broker.log) == f"<InProcessLog of a broker at {broker.bootstrap_servers}>"
        with broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS") as fault:
            assert repr(fault) == "<Fault on Produce (fail), met 0 of 1 times>"
    assert repr(broker) == "<Broker at no address: the broker has stopped>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("t", 5, "x"), "key must be bytes, str or None, not int"),
        (("t", None, 5.5), "value must be bytes, str or None, not float"),
        (("t", None, {"a": 1}), "value must be bytes, str or None, not dict"),
        ((5, None, "x"), "topic must be str, not int"),
    ],
)
def test_a_wrong_type_is_named(arguments: tuple[Any, ...], message: str) -> None:
    with Broker() as broker:
        with pytest.raises(TypeError, match=message):
            broker.log.append(*arguments)
        assert broker.log.append("t", None, "x") == 0


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"headers": [("trace", "7")]}, "the value of header 'trace' must be bytes or None, not str"),
        ({"headers": [(b"trace", b"7")]}, "a header's name must be str, not bytes"),
        ({"headers": [7]}, "headers must be pairs of a name and a value, not int"),
        ({"partition": "0"}, "partition must be int, not str"),
        ({"timestamp_ms": 1.5}, "timestamp_ms must be int, not float"),
    ],
)
def test_a_wrong_type_of_an_option_is_named(keywords: dict[str, Any], message: str) -> None:
    with Broker() as broker, pytest.raises(TypeError, match=message):
        broker.log.append("t", None, "x", **keywords)


def test_reading_with_wrong_types_is_refused_too() -> None:
    wrong: Any = "0"
    with Broker() as broker:
        broker.log.append("t", None, "x")
        with pytest.raises(TypeError, match="partition must be int, not str"):
            list(broker.log.read("t", wrong))
        with pytest.raises(TypeError, match="offset must be int, not str"):
            list(broker.log.read("t", 0, wrong))


def test_a_mistaken_setting_is_said_to_be_one() -> None:
    with pytest.raises(InvalidConfiguration) as refusal:
        Broker(settings={"num.partitionz": 3})
    assert str(refusal.value) == "settings: Unknown broker config name: num.partitionz; did you mean num.partitions?"
    with pytest.raises(InvalidConfiguration, match=r"^settings: Invalid value many"):
        Broker(settings={"num.partitions": "many"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("num.partitions=3", "settings must be a mapping of names to values, not str"),
        ([("num.partitions", 3)], "settings must be a mapping of names to values, not list"),
        ({3: 4}, "the name of a setting must be str, not int"),
    ],
)
def test_settings_of_a_wrong_type_are_said_to_be(settings: Any, message: str) -> None:
    with pytest.raises(TypeError) as refusal:
        Broker(settings=settings)
    assert str(refusal.value) == message


def test_a_topic_that_is_not_there_is_named_as_such() -> None:
    with Broker() as broker, pytest.raises(ProtocolError) as refusal:
        list(broker.log.read("orders"))
    assert str(refusal.value) == "There is no topic 'orders'."
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

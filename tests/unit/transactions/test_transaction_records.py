"""The records of __transaction_state are Kafka's, byte for byte, and read back as they were written."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.transactions.log_records import UnreadableRecord, decode_key, decode_value, encode_key, encode_value
from cordwood.transactions.transaction import IN_LOG, State, Transaction

longs = st.integers(-(2**63), 2**63 - 1)
shorts = st.integers(-(2**15), 2**15 - 1)
names = st.text(max_size=30)
transactions = st.builds(
    Transaction,
    names,
    longs,
    shorts,
    st.integers(0, 2**31 - 1),
    st.sampled_from(sorted(IN_LOG - {State.EMPTY})),
    longs,
    st.frozensets(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=6),
    longs,
    longs,
    longs,
    shorts,
    shorts,
)


@given(names)
def test_a_key_reads_back(transactional_id: str) -> None:
    key = encode_key(transactional_id)
    assert decode_key(bytes(key)) == decode_key(key) == transactional_id


@given(transactions)
def test_a_value_reads_back(transaction: Transaction) -> None:
    value = encode_value(transaction)
    for data in (value, bytes(value)):
        assert decode_value(transaction.transactional_id, data) == transaction


@given(transactions, st.lists(st.uuids().filter(lambda each: each.int != 0), min_size=6, max_size=6))
def test_the_ids_of_topics_read_back_also_if_some_are_not_known(transaction: Transaction, ids: list[TopicId]) -> None:
    topics = sorted({topic for topic, _ in transaction.partitions})
    known = tuple((topic, ids[place]) for place, topic in enumerate(topics) if ids[place].int % 3)
    with_ids = replace(transaction, topic_ids=known)
    assert decode_value(transaction.transactional_id, bytes(encode_value(with_ids))) == with_ids


def test_ids_that_do_not_fit_the_topics_are_damage() -> None:
    one = (("t", TopicId(int=7)),)
    partitions = frozenset({TopicPartition("t", 2)})
    value = bytes(encode_value(Transaction("id", 5, 1, 60_000, State.ONGOING, 9, partitions, topic_ids=one)))
    assert value.endswith(b"\x10" + one[0][1].bytes)
    cut = value[:-17] + b"\x0f" + value[-15:]
    with pytest.raises(UnreadableRecord, match="15 bytes are not the ids of 1 topics"):
        decode_value("id", cut)


@given(st.binary(max_size=80))
def test_garbage_is_refused_and_nothing_else_happens(data: bytes) -> None:
    for decode in (decode_key, lambda value: decode_value("id", value)):
        try:
            decode(data)
        except UnreadableRecord:
            continue


def test_the_bytes_are_kafkas() -> None:
    assert encode_key("id") == bytes.fromhex("0000 0002 6964")
    empty = Transaction("id", 5, 1, 60_000, State.EMPTY, 9)
    start = "0001 0000000000000005 0001 0000ea60"
    assert encode_value(empty) == bytes.fromhex(start + "00 00 0000000000000009 ffffffffffffffff 00")
    ongoing = Transaction(
        "id", 5, 1, 60_000, State.ONGOING, 9, frozenset({TopicPartition("t", 2)}), 8, 4, client_version=2
    )
    assert encode_value(ongoing) == bytes.fromhex(
        start + "01 02 02 74 02 00000002 00 0000000000000009 0000000000000008 02 00 08 0000000000000004 02 02 0002"
    )


def test_values_of_version_0_are_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000005 0001 0000ea60 04 00000001 0001 74 00000001 00000002 0000000000000009 0000000000000008"
    )
    wanted = Transaction(
        "id", 5, 1, 60_000, State.COMPLETE_COMMIT, 9, frozenset({TopicPartition("t", 2)}), started_ms=8
    )
    assert decode_value("id", value) == wanted


@pytest.mark.parametrize(("state", "label"), [(State.EMPTY, "Empty"), (State.PREPARE_EPOCH_FENCE, "PrepareEpochFence")])
def test_states_are_shown_as_kafka_names_them(state: State, label: str) -> None:
    assert state.label == label


@pytest.mark.parametrize("state", [State.DEAD, State.PREPARE_EPOCH_FENCE, 8, -1])
def test_a_state_that_no_version_writes_is_damage(state: int) -> None:
    value = bytearray(encode_value(Transaction("id", 5, 1, 60_000, State.ONGOING, 9)))
    value[16] = state & 0xFF
    with pytest.raises(UnreadableRecord, match=f"there is no transaction state {int(state)} in a log"):
        decode_value("id", bytes(value))

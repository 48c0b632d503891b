"""The record of a family in __transaction_state, and the batch that a slot's record remembers."""

import struct

import pytest

from cordwood.transactions.families_records import (
    FAMILY_KEY_TYPE,
    Memory,
    Plan,
    decode_family_key,
    decode_memory,
    family_key,
    family_record,
)
from cordwood.transactions.log_records import UnreadableRecord, decode_value, encode_value, record_type
from cordwood.transactions.transaction import State, Transaction
from cordwood.transactions.transactional_ids import Transactions


@pytest.mark.parametrize(
    "memory",
    [
        Memory(),
        Memory(0, 5),
        Memory(2**63 - 1, 1_700_000_000_000, True),
        Memory(3, 4, False, Plan(17, b"d" * 32, b"offsets" * 1000)),
        Memory(3, 4, True, Plan(0, b"d" * 32)),
        Memory(3, 4, False, Plan(0)),
    ],
)
def test_what_a_family_remembers_is_read_as_it_was_written(memory: Memory) -> None:
    key, value = family_record("query", memory)
    assert value is not None
    assert record_type(key) == FAMILY_KEY_TYPE
    assert (decode_family_key(key), decode_memory(value)) == ("query", memory)


def test_the_layout_stays() -> None:
    assert family_record("q", Memory(7, 9, True)) == (
        bytes.fromhex("2710 0001 71"),
        bytes.fromhex("0000 0000000000000007 0000000000000009 01"),
    )
    assert family_record("q", Memory(7, 9, False, Plan(5, b"ab", b"xyz"))) == (
        bytes.fromhex("2710 0001 71"),
        bytes.fromhex("0000 0000000000000007 0000000000000009 02 0000000000000005 02 6162 00000003 78797a"),
    )


def test_bytes_of_a_later_version_are_passed_over() -> None:
    _, value = family_record("q", Memory(7, 9))
    assert value is not None
    assert decode_memory(value + b"more") == Memory(7, 9)
    planned = Memory(7, 9, False, Plan(1, b"d", b"t"))
    _, value = family_record("q", planned)
    assert value is not None
    assert decode_memory(value + b"more") == planned


@pytest.mark.parametrize(
    "key", [family_key("query")[:-1], family_key("query") + b"x", struct.pack(">hh", FAMILY_KEY_TYPE, 1) + b"\xff"]
)
def test_a_garbled_key_is_refused(key: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_family_key(key)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00" * 18,
        b"\x00\x01" + b"\x00" * 17,
        *(
            (family_record("q", Memory(7, 9, False, Plan(5, b"ab", b"xyz")))[1] or b"")[:length]
            for length in (19, 27, 30, 36)
        ),
        b"\x00" * 18 + b"\x02" + b"\x00" * 8 + b"\xff" + b"\x00" * 8,
    ],
)
def test_a_garbled_value_is_refused(value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_memory(value)


def test_a_tombstone_forgets_a_family_and_one_that_nobody_knows_is_fine() -> None:
    machine = Transactions()
    for _ in range(2):
        machine.replay(*family_record("query", Memory(3, 4)))
        assert machine.families.get("query").last_batch_id == 3
        machine.replay(family_key("query"), None)
        machine.replay(family_key("query"), None)
        assert "query" not in machine.families


def test_a_slot_remembers_the_batch_that_it_was_joined_for() -> None:
    for batch_id in (-1, 0, 2**63 - 1):
        slot = Transaction("family:query/0", 7, 3, 60_000, State.EMPTY, 1000, batch_id=batch_id)
        assert decode_value(slot.transactional_id, encode_value(slot)) == slot

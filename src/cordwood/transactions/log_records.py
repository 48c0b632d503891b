"""The records of __transaction_state, in Apache Kafka's own format.

Key: record type 0 and the transactional id. Value: version 1 (0 is read too). A null value forgets the id.

Three tagged fields are ours, because Kafka passes over tags that it does not know: the epoch that the client was raised
from, which Kafka keeps in memory only, the batch that a family's slot was joined for, and the ids of topics. Records of
families have a type of their own, which Kafka passes over too: see `families_records`.
"""

import struct
from collections.abc import Iterable, Iterator

from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from cordwood.records.written import Written
from cordwood.transactions.transaction import (
    IN_LOG,
    NO_BATCH_ID,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    State,
    Transaction,
)

Record = tuple[bytes, bytes | None]
"""Key and value to append; a null value removes the key."""

KEY_TYPE = 0
_VALUE_VERSION = 1
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = 0, 1, 2
_LAST_PRODUCER_EPOCH, _BATCH_ID, _TOPIC_IDS = 10_000, 10_001, 10_002
_TAGS = {
    _PREVIOUS_PRODUCER_ID: struct.Struct(">q"),
    _NEXT_PRODUCER_ID: struct.Struct(">q"),
    _CLIENT_VERSION: struct.Struct(">h"),
    _LAST_PRODUCER_EPOCH: struct.Struct(">h"),
    _BATCH_ID: struct.Struct(">q"),
}
_START = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_INT32 = struct.Struct(">i")
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


class UnreadableRecord(ValueError):
    """A record that no version of this format explains."""


def encode_key(transactional_id: str) -> bytes:
    raw = transactional_id.encode()
    return Written(struct.pack(">hh", KEY_TYPE, len(raw)) + raw, transactional_id)


def encode_value(transaction: Transaction) -> bytes:
    out = bytearray(
        _START.pack(
            _VALUE_VERSION,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            transaction.state,
        )
    )
    topics: list[tuple[str, list[int]]] = []
    if transaction.state is State.EMPTY:
        out.append(0)
    else:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(transaction.partitions):
            by_topic.setdefault(topic, []).append(partition)
        topics = list(by_topic.items())
        out += _uvarint(len(topics) + 1)
        for topic, indexes in topics:
            name = topic.encode()
            out += _uvarint(len(name) + 1) + name + _uvarint(len(indexes) + 1)
            out += b"".join(map(_INT32.pack, indexes)) + b"\x00"
    out += _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    out += _tagged(
        [
            (_PREVIOUS_PRODUCER_ID, transaction.previous_producer_id, NO_PRODUCER_ID),
            (_NEXT_PRODUCER_ID, transaction.next_producer_id, NO_PRODUCER_ID),
            (_CLIENT_VERSION, transaction.client_version, 0),
            (_LAST_PRODUCER_EPOCH, transaction.last_producer_epoch, NO_PRODUCER_EPOCH),
            (_BATCH_ID, transaction.batch_id, NO_BATCH_ID),
        ],
        _encode_ids(transaction, topics),
    )
    if transaction.state is State.EMPTY and transaction.partitions:
        return bytes(out)  # the encoded value lacks some fields
    return Written(bytes(out), transaction)


def record_of(transaction: Transaction) -> Record:
    return encode_key(transaction.transactional_id), encode_value(transaction)


def removal_of(transaction: Transaction) -> Record:
    """The tombstone of an id that is forgotten."""
    transaction.moved_to(State.DEAD)
    return encode_key(transaction.transactional_id), None


def decode_key(key: bytes) -> str:
    """The transactional id; UnreadableRecord for a record of another type."""
    if isinstance(key, Written) and isinstance(key.says, str):
        return key.says
    reader = _Reader(key)
    kind = reader.int16()
    if kind != KEY_TYPE:
        raise UnreadableRecord(f"record type {kind} is not a transaction")
    return reader.text(reader.int16())


def record_type(key: bytes) -> int:
    return _Reader(key).int16()


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    if isinstance(value, Written) and isinstance(value.says, Transaction):
        return value.says
    reader = _Reader(value)
    version, producer_id, producer_epoch, timeout_ms, state = reader.take(_START)
    if version not in (0, 1):
        raise UnreadableRecord(f"version {version} of a transaction's value is not known")
    flexible = version >= 1
    partitions = list(reader.partitions(flexible))
    updated_ms, started_ms = reader.take(_TIMES)
    tags = reader.tags() if flexible else {}
    if state not in IN_LOG:
        raise UnreadableRecord(f"there is no transaction state {state} in a log")
    return Transaction(
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        State(state),
        updated_ms,
        frozenset(partitions),
        started_ms,
        tags.get(_PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID),
        tags.get(_NEXT_PRODUCER_ID, NO_PRODUCER_ID),
        tags.get(_CLIENT_VERSION, 0),
        tags.get(_LAST_PRODUCER_EPOCH, NO_PRODUCER_EPOCH),
        tags.get(_BATCH_ID, NO_BATCH_ID),
        _decode_ids(partitions, reader.topic_ids),
    )


def _encode_ids(transaction: Transaction, topics: list[tuple[str, list[int]]]) -> bytes:
    """The ids of the topics, in the order of the partitions in the record; zero for an id that is not known."""
    known = dict(transaction.topic_ids)
    return b"".join([known.get(topic, ZERO_TOPIC_ID).bytes for topic, _ in topics]) if known else b""


def _decode_ids(partitions: list[TopicPartition], ids: bytes) -> tuple[tuple[str, TopicId], ...]:
    if not ids:
        return ()
    topics = list(dict.fromkeys(topic for topic, _ in partitions))
    if len(ids) != 16 * len(topics):
        raise UnreadableRecord(f"{len(ids)} bytes are not the ids of {len(topics)} topics")
    found = [(topic, TopicId(bytes=ids[16 * place : 16 * place + 16])) for place, topic in enumerate(topics)]
    return tuple(sorted(each for each in found if each[1] != ZERO_TOPIC_ID))


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tagged(fields: Iterable[tuple[int, int, int]], topic_ids: bytes) -> bytes:
    """Tagged fields (tag, value, default); those at their default are left out."""
    present = [_START_OF_TAG[tag] + _TAGS[tag].pack(value) for tag, value, default in fields if value != default]
    if topic_ids:
        present.append(_uvarint(_TOPIC_IDS) + _uvarint(len(topic_ids)) + topic_ids)
    return _uvarint(len(present)) + b"".join(present)


_START_OF_TAG = {tag: _uvarint(tag) + _uvarint(layout.size) for tag, layout in _TAGS.items()}
"""Tag and size of each field of a fixed size."""


class _Reader:
    """Parses a record. UnreadableRecord if it is cut or garbled."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.topic_ids = b""

    def bytes(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise UnreadableRecord(f"{length} bytes do not fit at {self._at} in {len(self._data)}")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.bytes(layout.size))

    def int16(self) -> int:
        return int.from_bytes(self.bytes(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.bytes(4), "big", signed=True)

    def uvarint(self) -> int:
        value, shift = 0, 0
        while shift < 35:
            byte = self.bytes(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise UnreadableRecord("a number that does not end")

    def text(self, length: int) -> str:
        try:
            return self.bytes(length).decode()
        except UnicodeDecodeError as error:
            raise UnreadableRecord(f"a name is garbled: {error}") from None

    def count(self, flexible: bool) -> int:
        return self.uvarint() - 1 if flexible else self.int32()

    def partitions(self, flexible: bool) -> Iterator[TopicPartition]:
        for _ in range(self.count(flexible)):
            topic = self.text(self.uvarint() - 1 if flexible else self.int16())
            for _ in range(self.count(flexible)):
                yield TopicPartition(topic, self.int32())
            if flexible:
                self.tags()

    def tags(self) -> dict[int, int]:
        """The values of the tagged fields that are known here."""
        found: dict[int, int] = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            raw = self.bytes(self.uvarint())
            if tag == _TOPIC_IDS:
                self.topic_ids = raw
            layout = _TAGS.get(tag)
            if layout is not None:
                if len(raw) != layout.size:
                    raise UnreadableRecord(f"tagged field {tag} has {len(raw)} bytes")
                (found[tag],) = layout.unpack(raw)
        return found

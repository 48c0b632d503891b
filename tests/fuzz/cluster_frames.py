"""Frames for the brokers of a replicated cluster: of every API and version, those of brokers among them, made from
their schemas about a topic that exists, then spoiled. A seed gives the same frames again.
"""

import struct
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from benchmarks.hostile_requests import fields_of, hostile_requests
from benchmarks.wide_requests import Stage
from tests.fuzz.mutations import mutated

from cordwood.node.apis import SERVED
from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.asking import encode_request
from cordwood.wire.encoding.primitives import tagged_fields, uvarint
from cordwood.wire.requests import IMAGE_REVISION_TAG, SENDER_TAG, Sender

OF_BROKERS = (
    ApiKey.FETCH,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_HEARTBEAT,
    *(key for key in ApiKey if key >= 10_000),
)
"""APIs that brokers use among themselves, and that of Kafka's controllers."""

_NUMBERS = (-2, -1, 0, 1, 2, 3, 4, 5, 100, 2**15 - 1, 2**31 - 1, -(2**31), 2**53, 2**62, 2**63 - 1)
_LEAVES = 3
"""So many values of a request are other than its maker gave it."""
_MAX_BYTES = 40_000


def frames(random: Random, stage: Stage, senders: Sequence[Sender]) -> Iterator[bytes]:
    """Endless. `senders` are the brokers that requests may claim to be of, with true keys and false ones."""
    every = {
        key: list(hostile_requests(ApiKey(key), range(api.min_version, api.max_version + 1)))
        for key, api in APIS.items()
    }
    while True:
        key = random.choice(random.choices((OF_BROKERS, tuple(SERVED), tuple(APIS)), (10, 9, 1))[0])
        hostile = random.choice(every[key])
        fields = fields_of(hostile, stage, random.choice((1, 2, 5, 40)), _MAX_BYTES)
        frame = _header(random, key, hostile.version, senders) + _body(random, key, hostile.version, fields, senders)
        yield mutated(frame, random) if random.random() < 0.4 else frame


def _header(random: Random, key: int, version: int, senders: Sequence[Sender]) -> bytes:
    header = struct.pack(">hhih", key, version, random.randrange(1 << 16), 4) + b"fuzz"
    if not flexible(key, version):
        return header
    tags: list[tuple[int, bytes]] = []
    if random.random() < 0.3:
        tags.append((IMAGE_REVISION_TAG, uvarint(random.choice((1, 30, 2**31, 2**62, 2**64 - 1)))))
    if random.random() < 0.7:
        tags.append((SENDER_TAG, random.choice(senders).encoded()))
    if random.random() < 0.2:
        tags.append((random.choice((0, 1, IMAGE_REVISION_TAG, SENDER_TAG, 2**31 - 1)), random.randbytes(9)))
    return header + tagged_fields(tags if random.random() < 0.1 else sorted(tags))


def _body(random: Random, key: int, version: int, fields: dict[str, Any], senders: Sequence[Sender]) -> bytes:
    """The request as it was made, where its fields have no room for other values."""
    true = encode_request(key, version, fields)
    if key == ApiKey.FETCH:
        # As a follower: Kafka's versions name it in one of two ways.
        sender = random.choice(senders)
        fields["replica_id"] = sender.broker_id
        fields["replica_state"] = {"replica_id": sender.broker_id, "replica_epoch": random.choice((-1, 0, 1, 2, 3, 9))}
        fields["max_wait_ms"] = 0
    for _ in range(random.randint(0, _LEAVES)):
        _change_leaf(random, fields)
    try:
        return encode_request(key, version, fields)
    except ValueError:
        return true


def _change_leaf(random: Random, value: Any) -> None:
    """Gives a number, or a text, somewhere below `value` another value; or repeats an element of an array."""
    while isinstance(value, dict | list) and value:
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        place = random.choice(places)
        below = value[place]
        if isinstance(below, list) and below and random.random() < 0.2:
            below.append(random.choice(below))
        elif isinstance(below, bool):
            value[place] = not below
        elif isinstance(below, int):
            value[place] = random.choice(_NUMBERS)
        elif isinstance(below, str):
            value[place] = random.choice(("", ".", "\0", "é" * 200, "__consumer_offsets", "__transaction_state", below))
        elif isinstance(below, bytes):
            value[place] = mutated(below, random)
        value = below

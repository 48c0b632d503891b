"""The requests that are Cordwood's own, byte for byte: no other implementation checks them."""

from typing import Any

import pytest

from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.encoding.codec import reader, writer
from cordwood.wire.encoding.schema import load

SLOT = {"transactional_id": "family:q/3", "producer_id": 7, "producer_epoch": 2}
LAYOUTS = [
    (
        ApiKey.FAMILY_JOIN,
        "request",
        {"family": "q", "batch_id": 5, "timeout_ms": 60_000},
        "02 71  0000000000000005  0000ea60  00",
    ),
    (
        ApiKey.FAMILY_JOIN,
        "response",
        {"last_batch_id": 4, **SLOT},
        "00000000  0000  00  00  0000000000000004  0b 66616d696c793a712f33  0000000000000007  0002  00",
    ),
    (ApiKey.FAMILY_RENEW, "request", {"family": "q", "batch_id": 5}, "02 71  0000000000000005  00"),
    (
        ApiKey.FAMILY_RENEW,
        "response",
        {"decided": True, "last_batch_id": 5},
        "00000000  0000  00  01  0000000000000005  00",
    ),
    (
        ApiKey.FAMILY_DECIDE,
        "request",
        {"family": "q", "batch_id": 5, "commit": True, "winners": [SLOT], "forget": True, "timeout_ms": 9},
        "02 71  0000000000000005  01  02 0b 66616d696c793a712f33 0000000000000007 0002 00  01  00000009  00",
    ),
    (
        ApiKey.FAMILY_DECIDE,
        "response",
        {"error_code": 90, "error_message": "no", "already_decided": False, "last_batch_id": -1},
        "00000000  005a  03 6e6f  00  ffffffffffffffff  00",
    ),
    (ApiKey.FAMILY_RECALL, "request", {"family": "q"}, "02 71  00"),
    (
        ApiKey.FAMILY_RECALL,
        "response",
        {"last_batch_id": 5, "decided_ms": 6, "rows": 7, "plan_digest": b"d", "plan": b"text"},
        "00000000  0000  00  0000000000000005  0000000000000006  0000000000000007  02 64  05 74657874  00",
    ),
    (ApiKey.FAMILY_LIST, "request", {"families": None}, "00  00"),
    (ApiKey.FAMILY_LIST, "request", {"families": ["q"]}, "02 02 71  00"),
    (
        ApiKey.FAMILY_LIST,
        "response",
        {"families": [{"name": "q", "last_batch_id": 5, "decided_ms": 6, "slots": 4, "joined_slots": 3}]},
        "00000000  0000  02 02 71 0000000000000005 0000000000000006 00 00000004 00000003 00000000 00000000 00  00",
    ),
]


@pytest.mark.parametrize(("key", "kind", "values", "layout"), LAYOUTS)
def test_the_layout_stays(key: ApiKey, kind: str, values: dict[str, Any], layout: str) -> None:
    message = load(APIS[key].name)[kind]
    parts: list[bytes] = []
    writer(message, 0)(values, parts.append)
    assert b"".join(parts) == bytes.fromhex(layout)
    read, end = reader(message, 0)(memoryview(b"".join(parts)), 0)
    assert end == len(b"".join(parts))
    for name, value in values.items():
        if not isinstance(value, list) or not value or not isinstance(value[0], dict):
            assert getattr(read, name) == value


def test_they_are_flexible_from_their_first_version_on() -> None:
    assert all(flexible(key, 0) for key in range(ApiKey.FAMILY_JOIN, ApiKey.FAMILY_RECALL + 1))


def test_a_decision_carries_a_plan_from_its_second_version_on() -> None:
    message = load("FamilyDecide")["request"]
    values = {"family": "q", "batch_id": 5, "commit": True, "rows": 7, "plan_digest": b"d", "plan": b"text"}
    parts: list[bytes] = []
    writer(message, 1)(values, parts.append)
    assert b"".join(parts) == bytes.fromhex(
        "02 71  0000000000000005  01  01  00  00007530  0000000000000007  02 64  05 74657874  00"
    )
    older: list[bytes] = []
    writer(message, 0)(values, older.append)
    read, _ = reader(message, 0)(memoryview(b"".join(older)), 0)
    assert (read.rows, read.plan_digest, read.plan) == (-1, b"", b"")

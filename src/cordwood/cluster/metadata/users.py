"""The users of the cluster: for each one the keys of its password, by mechanism, and never a password.

A row is a JSON object: the name of a mechanism, and its keys.

    {"SCRAM-SHA-256": {"iterations": 8192, "salt": "...", "server_key": "...", "stored_key": "..."}}
"""

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from cordwood.model.credentials import SCRAM_NAMES, USUAL_SHAPE, KeyShape, ScramKeys, ScramMechanism, UserKeys, shape_of


class UserRow(NamedTuple):
    keys: UserKeys
    mod_revision: int = 0
    unknown: tuple[tuple[str, Any], ...] = ()
    """Mechanisms that only a newer release knows."""


class UserTable:
    def __init__(self) -> None:
        self.rows: dict[str, UserRow] = {}
        self.secret = b""
        """Random bytes that only brokers know; empty: the cluster never had a user."""
        self._shapes: Counter[tuple[ScramMechanism, KeyShape]] = Counter()

    def take(self, name: str, value: bytes | None, mod_revision: int) -> None:
        """Takes the present value of a user's key; None: the user is gone. Raises ValueError, TypeError,
        AttributeError."""
        after = None if value is None else decode_user(value, mod_revision)
        if (before := self.rows.pop(name, None)) is not None:
            self._shapes -= _shapes(before)
        if after is not None:
            self.rows[name] = after
            self._shapes += _shapes(after)

    def shapes(self, mechanism: ScramMechanism) -> dict[KeyShape, int]:
        """The shapes of users' keys for a mechanism, each with the number of users that have it."""
        return {shape: count for (of, shape), count in self._shapes.items() if of is mechanism} or {USUAL_SHAPE: 1}


def _shapes(row: UserRow) -> Counter[tuple[ScramMechanism, KeyShape]]:
    return Counter((mechanism, shape_of(keys)) for mechanism, keys in row.keys.items())


def encode_user(row: UserRow) -> bytes:
    fields: dict[str, Any] = dict(row.unknown)
    for mechanism, keys in row.keys.items():
        fields[mechanism.sasl_name] = {
            "iterations": keys.iterations,
            "salt": _text(keys.salt),
            "stored_key": _text(keys.stored_key),
            "server_key": _text(keys.server_key),
        }
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def decode_user(value: bytes, mod_revision: int) -> UserRow:
    """Reads a row. Raises ValueError, TypeError, AttributeError."""
    fields: Mapping[str, Any] = json.loads(value)
    keys = {SCRAM_NAMES[name]: _keys(stored) for name, stored in fields.items() if name in SCRAM_NAMES}
    unknown = tuple((name, stored) for name, stored in fields.items() if name not in SCRAM_NAMES)
    return UserRow(keys, mod_revision, unknown)


def _keys(fields: Mapping[str, Any]) -> ScramKeys:
    salt, stored_key, server_key = (
        b64decode(str(fields.get(name)), validate=True) for name in ("salt", "stored_key", "server_key")
    )
    return ScramKeys(int(fields.get("iterations", 0)), salt, stored_key, server_key)


def _text(data: bytes) -> str:
    return b64encode(data).decode()

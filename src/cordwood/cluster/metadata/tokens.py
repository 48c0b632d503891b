"""The delegation tokens of the cluster: who may log in as whom, and until when. No row has the secret of its token.

{"ends_ms": 1, "expires_ms": 1, "groups": [], "issued_ms": 1, "owner": "User:alice", "renewers": [],
 "requester": "User:alice"}
"""

import json
from typing import Any, NamedTuple

from cordwood.model.delegation_tokens import DelegationToken

_FIELDS = frozenset(DelegationToken._fields) - {"token_id"}


class TokenRow(NamedTuple):
    token: DelegationToken
    mod_revision: int


class TokenTable:
    def __init__(self) -> None:
        self.rows: dict[str, TokenRow] = {}
        """By id."""
        self.foreign: set[str] = set()
        """The ids of rows with fields that only a newer release knows: they may narrow what the token is good for, so
        nobody logs in by it here."""
        self.changes = 0
        """Counts the changes of tokens."""

    def take(self, token_id: str, value: bytes | None, mod_revision: int) -> None:
        """Takes the present value of a token's key; None: the token is gone. Raises ValueError, TypeError, KeyError."""
        self.changes += 1
        self.rows.pop(token_id, None)
        self.foreign.discard(token_id)
        if value is None:
            return
        token = decode_token(token_id, value)
        if token is None:
            self.foreign.add(token_id)
        else:
            self.rows[token_id] = TokenRow(token, mod_revision)

    def find(self, token_id: str) -> DelegationToken | None:
        row = self.rows.get(token_id)
        return None if row is None else row.token


def encode_token(token: DelegationToken) -> bytes:
    fields = token._asdict()
    del fields["token_id"]
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def decode_token(token_id: str, value: bytes) -> DelegationToken | None:
    """Reads a row; None for one with fields that this release does not know. Raises ValueError, TypeError."""
    fields: dict[str, Any] = json.loads(value)
    if missing := _FIELDS - fields.keys():
        raise ValueError(f"a token lacks {', '.join(sorted(missing))}")
    if fields.keys() - _FIELDS:
        return None
    return DelegationToken(
        token_id,
        str(fields["owner"]),
        str(fields["requester"]),
        tuple(map(str, fields["renewers"])),
        int(fields["issued_ms"]),
        int(fields["expires_ms"]),
        int(fields["ends_ms"]),
        tuple(map(str, fields["groups"])),
    )

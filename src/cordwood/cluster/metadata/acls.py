"""The rules of access of the cluster. A rule is its content, so its key is a digest of that: a rule that is made twice
is one rule.

    {"host": "*", "kind": 2, "name": "orders", "operation": 3, "pattern": 3, "permission": 3, "principal": "User:alice"}
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from cordwood.model.acls import Acl, Pattern, Permission
from cordwood.model.operations import Operation, ResourceKind


class AclRow(NamedTuple):
    acl: Acl
    mod_revision: int


class LastChange(NamedTuple):
    """When a rule was last made or removed: by the wall clock of the broker that did it, and its revision; 0: never."""

    wall_ms: int
    revision: int


class AclTable:
    def __init__(self) -> None:
        self.rows: dict[str, AclRow] = {}
        """By id."""
        self.changes = 0
        """Counts the changes of rules."""
        self.last_change = LastChange(0, 0)

    def __iter__(self) -> Iterator[Acl]:
        return (row.acl for row in self.rows.values())

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, acl_id: str, value: bytes | None, mod_revision: int) -> None:
        """Takes the present value of a rule's key; None: the rule is gone. Raises ValueError, TypeError, which name the
        rule as damaged: a broker that skipped a rule might serve those whom it refuses."""
        self.changes += 1
        if value is None:
            self.rows.pop(acl_id, None)
        else:
            self.rows[acl_id] = AclRow(decode_acl(value), mod_revision)


def acl_id(acl: Acl) -> str:
    return hashlib.sha256(encode_acl(acl)).hexdigest()[:32]


def encode_acl(acl: Acl) -> bytes:
    return json.dumps(acl._asdict(), separators=(",", ":"), sort_keys=True).encode()


def decode_acl(value: bytes) -> Acl:
    """Reads a rule. Raises ValueError, TypeError: every field has to be understood."""
    fields: dict[str, Any] = json.loads(value)
    unknown = fields.keys() ^ set(Acl._fields)
    if unknown:
        raise ValueError(f"a rule has the fields {', '.join(sorted(Acl._fields))}, not {', '.join(sorted(unknown))}")
    return Acl(
        ResourceKind(fields["kind"]),
        Pattern(fields["pattern"]),
        str(fields["name"]),
        str(fields["principal"]),
        str(fields["host"]),
        Operation(fields["operation"]),
        Permission(fields["permission"]),
    )

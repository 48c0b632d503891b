"""The quotas of clients. A row has the quotas of one entity; its key is a digest of the entity. A name of null is the
default.

    {"entity": [["client-id", null], ["user", "alice"]], "quotas": {"producer_byte_rate": 1048576.0}}
"""

import hashlib
import json
from types import MappingProxyType
from typing import Any

from cordwood.model.quotas import Entity, Quotas, entity_of


class QuotaTable:
    def __init__(self) -> None:
        self.by_entity: dict[Entity, Quotas] = {}
        self.mod_revisions: dict[str, int] = {}
        """The revisions of the rows, by id."""
        self._entities: dict[str, Entity] = {}

    def take(self, quota_id: str, value: bytes | None, mod_revision: int) -> None:
        """Takes the present value of an entity's key; None: the entity has no quotas. Raises ValueError, TypeError."""
        before = self._entities.pop(quota_id, None)
        if before is not None:
            del self.by_entity[before]
            del self.mod_revisions[quota_id]
        if value is not None:
            entity, quotas = decode_quotas(value)
            self._entities[quota_id] = entity
            self.by_entity[entity] = quotas
            self.mod_revisions[quota_id] = mod_revision


def quota_id(entity: Entity) -> str:
    return hashlib.sha256(json.dumps(entity, separators=(",", ":")).encode()).hexdigest()[:32]


def encode_quotas(entity: Entity, quotas: Quotas) -> bytes:
    fields = {"entity": entity, "quotas": dict(quotas)}
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def decode_quotas(value: bytes) -> tuple[Entity, Quotas]:
    """Reads a row. Quotas that only a newer release knows are kept, and hold for nobody. Raises ValueError,
    TypeError."""
    fields: dict[str, Any] = json.loads(value)
    entity = entity_of((str(of), name) for of, name in fields["entity"])
    return entity, MappingProxyType({str(key): float(each) for key, each in fields["quotas"].items()})

"""Quotas of clients: set, removed, and which ones hold for a client, through the requests of Kafka's tools.

librdkafka has no such requests, so they go to a broker over a connection of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka.admin import ConfigResource

from cordwood.administration.asking import ask, first_answer
from cordwood.administration.brokers import brokers
from cordwood.model.errors import ErrorCode, code_name
from cordwood.model.failure import Failure
from cordwood.model.quotas import Entity, Holding, Named, Part, QuotaKey, Quotas, entity_of, holding, text_of
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection

_VERSION: Final = 1
_SHARED_BY: Final = "quota.shared.by"


class QuotaThatHolds(NamedTuple):
    key: QuotaKey
    value: float
    entity: Entity
    """Whose quota it is."""
    sharers: str
    """Who uses it up together."""

    def as_json(self) -> dict[str, Any]:
        return {
            "quota": self.key,
            "value": self.value,
            "of": entity_as_json(self.entity),
            "shared_by": self.sharers,
        }


def entity_as_json(entity: Entity) -> dict[str, str | None]:
    return {part.of: part.name for part in entity}


def quotas(connection: Connection) -> dict[Entity, Quotas]:
    """All quotas, by entity, in a fixed order. Raises Failure."""
    values = {"components": [], "strict": False}
    _, told = first_answer(
        brokers(connection),
        lambda asked: ask(asked, ApiKey.DESCRIBE_CLIENT_QUOTAS, _VERSION, values, connection.timeout_s),
    )
    if told.error_code:
        raise _failure(told.error_code, told.error_message)
    found = {
        entity_of((part.entity_type, part.entity_name) for part in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in told.entries or ()
    }
    return dict(sorted(found.items(), key=lambda each: text_of(each[0])))


def alter(
    connection: Connection, entity: Entity, changes: Mapping[str, float] | Mapping[str, None], *, dry_run: bool
) -> None:
    """Sets quotas of an entity, or removes those that are None. Raises Failure."""
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in changes.items()]
    parts = [{"entity_type": part.of, "entity_name": part.name} for part in entity]
    values = {"entries": [{"entity": parts, "ops": ops}], "validate_only": dry_run}
    _, told = first_answer(
        brokers(connection),
        lambda asked: ask(asked, ApiKey.ALTER_CLIENT_QUOTAS, _VERSION, values, connection.timeout_s),
    )
    (entry,) = told.entries
    if entry.error_code:
        raise _failure(entry.error_code, entry.error_message)


def holding_for(connection: Connection, user: str, client_id: str) -> list[QuotaThatHolds]:
    """The quotas that hold for a client. Raises Failure."""
    known = quotas(connection)
    found = ((key, holding(known, user, client_id, key)) for key in QuotaKey)
    return [QuotaThatHolds(key, held.value, held.entity, _sharers(held)) for key, held in found if held is not None]


def _sharers(held: Holding) -> str:
    user, client_id = held.shared_by
    if user and client_id:
        return f"all connections of user {user} with client id {client_id}"
    return f"all clients of user {user}" if user else f"all connections with client id {client_id}"


def holding_at(connection: Connection, address: str) -> list[QuotaThatHolds]:
    """The quota of new connections that holds for an address, if there is one. Raises Failure."""
    known, key = quotas(connection), QuotaKey.CONNECTION_CREATION_RATE
    for name in (address, None):
        entity = (Part(Named.IP, name),)
        rate = known.get(entity, {}).get(key)
        if rate is not None:
            return [QuotaThatHolds(key, rate, entity, f"all connections from {address}")]
    return []


def sharing_brokers(connection: Connection) -> int:
    """The brokers of one machine that divide each quota among them, as the broker that is asked says. Raises
    Failure."""
    metadata = connection.call(lambda: connection.admin().list_topics(timeout=connection.timeout_s))
    resource = ConfigResource(ConfigResource.Type.BROKER, str(min(metadata.brokers)))
    (settings,) = connection.ask_all(lambda admin: admin.describe_configs([resource])).values()
    setting = settings.get(_SHARED_BY)
    return 1 if setting is None or setting.value is None else int(setting.value)


def _failure(code: int, message: str | None) -> Failure:
    hint = ""
    if code == ErrorCode.UNSUPPORTED_VERSION:
        hint = "`cordwood cluster upgrade` finalises the metadata version that quotas need"
    return Failure(code_name(code), message or "the broker refuses", hint)

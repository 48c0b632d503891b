"""Quotas of clients, under Kafka's names: whom a quota is for, what it bounds, and which one of several holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from cordwood.model.addresses import is_address
from cordwood.model.coordination import MAX_NAME_BYTES, is_too_long


class Named(StrEnum):
    """What a part of an entity names."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class QuotaKey(StrEnum):
    """What a quota bounds, at one broker."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    """Bytes of Produce requests in a second."""
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    """Bytes of answers to Fetch in a second."""
    REQUEST_PERCENTAGE = "request_percentage"
    """The time for which the event loop is busy with requests; 100 is all of it."""
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    """New connections in a second, by address."""


class Part(NamedTuple):
    of: Named
    name: str | None
    """None: the default, for all who have no quota under their own name."""


Entity = tuple[Part, ...]
"""Whom a quota is for, with its parts sorted by what they name."""

Quotas = Mapping[str, float]
"""The quotas of an entity, by key."""


class InvalidQuota(ValueError):
    """An entity or a quota that cannot be kept, with the reason."""


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """The entity with these parts: what each one names, and its name, or None for the default. Raises InvalidQuota."""
    found: dict[Named, str | None] = {}
    for of, name in parts:
        if of not in frozenset(Named):
            raise InvalidQuota(f"Unhandled client quota entity type: {of}")
        if of in found:
            raise InvalidQuota(f"Invalid client quota entity, duplicate entity entry {of}")
        if name is not None:
            _check_name(Named(of), name)
        found[Named(of)] = name
    if not found:
        raise InvalidQuota("Invalid empty client quota entity")
    if Named.IP in found and len(found) > 1:
        raise InvalidQuota("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    return tuple(Part(of, found[of]) for of in sorted(found))


def _check_name(of: Named, name: str) -> None:
    if not name:
        raise InvalidQuota(f"Empty {of} not supported")
    if is_too_long(name):
        raise InvalidQuota(f"The name of a {of} has at most {MAX_NAME_BYTES} bytes.")
    if of is Named.IP and not is_address(name):
        raise InvalidQuota(f"{name} is not an IP address, and the names of hosts are not resolved here.")


def keys_of(entity: Entity) -> tuple[QuotaKey, ...]:
    """The quotas that the entity may have."""
    return _OF_ADDRESSES if entity[0].of is Named.IP else _OF_CLIENTS


def check_quota(entity: Entity, key: str, value: float) -> None:
    """Raises InvalidQuota for a quota that the entity cannot have."""
    if key not in keys_of(entity):
        able = ", ".join(keys_of(entity))
        raise InvalidQuota(f"Invalid configuration key {key}: an entity such as {text_of(entity)} may have {able}.")
    if not math.isfinite(value) or value <= 0:
        raise InvalidQuota(f"Quota {key} must be greater than 0")
    if key in _WHOLE and value != round(value):
        raise InvalidQuota(f"{key} cannot be a fractional value.")


_OF_CLIENTS: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
_OF_ADDRESSES: Final = (QuotaKey.CONNECTION_CREATION_RATE,)
_WHOLE: Final = frozenset(QuotaKey) - {QuotaKey.REQUEST_PERCENTAGE}


def text_of(entity: Entity) -> str:
    return ", ".join(f"{part.of} {'<default>' if part.name is None else part.name}" for part in entity)


def by_precedence(user: str, client_id: str) -> tuple[Entity, ...]:
    """The entities whose quotas may hold for a client, in Kafka's order: the first one that has the quota."""
    own, default = Part(Named.USER, user), Part(Named.USER, None)
    client, any_client = Part(Named.CLIENT_ID, client_id), Part(Named.CLIENT_ID, None)
    return (
        (client, own),
        (any_client, own),
        (own,),
        (client, default),
        (any_client, default),
        (default,),
        (client,),
        (any_client,),
    )


class Holding(NamedTuple):
    """The quota that holds for a client, and with whom the client shares it."""

    entity: Entity
    value: float
    shared_by: tuple[str, str]
    """User and client id; an empty one stands for all. The default of an entity is a quota for each, not for all of
    them together."""


def holding(quotas: Mapping[Entity, Quotas], user: str, client_id: str, key: QuotaKey) -> Holding | None:
    """The quota of a kind that holds for the client; None: none does."""
    for entity in by_precedence(user, client_id):
        value = quotas.get(entity, {}).get(key)
        if value is not None:
            named = {part.of for part in entity}
            return Holding(
                entity, value, (user if Named.USER in named else "", client_id if Named.CLIENT_ID in named else "")
            )
    return None

"""The table of APIs that a node serves, gathered from the handlers' own declarations.

The type checker sees in `Rooms` that a node has every room that a handler asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from cordwood.node.handlers.administration import (
    configs,
    damage,
    describing_node,
    elections,
    features,
    log_dirs,
    metadata,
    moving_logs,
    reassignments,
    topics,
    unregistering,
    watching,
)
from cordwood.node.handlers.coordination import (
    consumer_groups,
    families,
    group_administration,
    groups,
    positions,
    transactions,
)
from cordwood.node.handlers.records import fetch, offsets_in_log, produce, producers
from cordwood.node.handlers.security import acls, quotas, sasl, tokens, users
from cordwood.node.requests.request import Handler, Served, served
from cordwood.node.requests.rights import RIGHTS
from cordwood.wire.apis import Api

if TYPE_CHECKING:
    from cordwood.security.trail.port import Trail

_DECLARED: tuple[Handler[Any], ...] = (
    *produce.HANDLERS,
    *fetch.HANDLERS,
    *offsets_in_log.HANDLERS,
    *metadata.HANDLERS,
    *topics.HANDLERS,
    *configs.HANDLERS,
    *producers.HANDLERS,
    *reassignments.HANDLERS,
    *positions.HANDLERS,
    *groups.HANDLERS,
    *consumer_groups.HANDLERS,
    *group_administration.HANDLERS,
    *log_dirs.HANDLERS,
    *moving_logs.HANDLERS,
    *damage.HANDLERS,
    *elections.HANDLERS,
    *unregistering.HANDLERS,
    *features.HANDLERS,
    *acls.HANDLERS,
    *quotas.HANDLERS,
    *transactions.HANDLERS,
    *families.HANDLERS,
    *watching.HANDLERS,
    *describing_node.HANDLERS,
    *sasl.HANDLERS,
    *users.HANDLERS,
    *tokens.HANDLERS,
)

SERVED: dict[int, Api] = {handler.api.key: handler.api for handler in _DECLARED if handler.api.key in RIGHTS}
"""An API without an entry in the table of rights is not served: nobody could say who may use it."""
SERVED_APIS = tuple(SERVED.values())


class Rooms(
    produce.ProduceRooms,
    fetch.FetchRooms,
    offsets_in_log.LogOffsetRooms,
    metadata.MetadataRooms,
    topics.TopicRooms,
    configs.ConfigRooms,
    producers.ProducerRooms,
    reassignments.ReassignmentRooms,
    positions.FetchRooms,
    groups.MemberRooms,
    consumer_groups.ConsumerGroupRooms,
    group_administration.GroupAdministrationRooms,
    log_dirs.LogDirRooms,
    moving_logs.MovingRooms,
    damage.DamageRooms,
    elections.ElectionRooms,
    unregistering.UnregisteringRooms,
    features.FeatureRooms,
    transactions.TransactionRooms,
    families.FamilyRooms,
    watching.WatchingRooms,
    describing_node.DescribingRooms,
    sasl.SaslRooms,
    acls.AclRooms,
    quotas.QuotaRooms,
    users.UserRooms,
    tokens.TokenRooms,
    Protocol,
):
    """The rooms that handlers ask for, all of them together: a node."""


def served_by(node: Rooms, trail: Trail | None = None) -> dict[int, Served]:
    """The APIs of a node, by key. `trail`: hears of the changes that they make."""
    found = {
        **served(node, produce.HANDLERS),
        **served(node, fetch.HANDLERS),
        **served(node, offsets_in_log.HANDLERS),
        **served(node, metadata.HANDLERS),
        **served(node, topics.HANDLERS),
        **served(node, configs.HANDLERS),
        **served(node, producers.HANDLERS),
        **served(node, reassignments.HANDLERS),
        **served(node, positions.HANDLERS),
        **served(node, groups.HANDLERS),
        **served(node, consumer_groups.HANDLERS),
        **served(node, group_administration.HANDLERS),
        **served(node, log_dirs.HANDLERS),
        **served(node, moving_logs.HANDLERS),
        **served(node, damage.HANDLERS),
        **served(node, elections.HANDLERS),
        **served(node, unregistering.HANDLERS),
        **served(node, features.HANDLERS),
        **served(node, acls.HANDLERS),
        **served(node, quotas.HANDLERS),
        **served(node, transactions.HANDLERS),
        **served(node, families.HANDLERS),
        **served(node, watching.HANDLERS),
        **served(node, describing_node.HANDLERS),
        **served(node, sasl.HANDLERS),
        **served(node, users.HANDLERS),
        **served(node, tokens.HANDLERS),
    }
    served_here = {key: each for key, each in found.items() if key in SERVED}
    if trail is None:
        return served_here
    # Imported here, to keep the start of a broker without a trail quick.
    from cordwood.node.security.recording import recorded

    return recorded(served_here, trail, node.image)


def served_versions(api_key: int) -> tuple[int, int] | None:
    """The first and the last version of an API that a node serves; None if it serves none."""
    api = SERVED.get(api_key)
    return None if api is None else (api.min_version, api.max_version)

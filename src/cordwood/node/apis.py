"""The table of APIs that this node serves, gathered from the handlers' own declarations."""

from cordwood.node.handlers import (
    acls,
    configs,
    consumer_groups,
    damage,
    families,
    fetch,
    group_administration,
    groups,
    log_dirs,
    metadata,
    offsets_in_log,
    positions,
    produce,
    producers,
    topics,
    transactions,
)
from cordwood.node.request import Handler

HANDLERS: dict[int, Handler] = {
    handler.api.key: handler
    for family in (
        produce,
        fetch,
        offsets_in_log,
        metadata,
        topics,
        configs,
        producers,
        positions,
        groups,
        consumer_groups,
        group_administration,
        log_dirs,
        damage,
        acls,
        transactions,
        families,
    )
    for handler in family.HANDLERS
}

SERVED_APIS = tuple(handler.api for handler in HANDLERS.values())


def served_versions(api_key: int) -> tuple[int, int] | None:
    """The first and the last version of an API that a node serves; None if it serves none."""
    handler = HANDLERS.get(api_key)
    return None if handler is None else (handler.api.min_version, handler.api.max_version)

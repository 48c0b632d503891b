"""Quotas of clients: DescribeClientQuotas, AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from cordwood.cluster.planner.security.quotas import EntityChange, QuotaChange
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.quotas import Entity, InvalidQuota, Named, Part, Quotas, entity_of
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.outcomes import each_outcome, status
from cordwood.node.requests.request import Made, Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.cluster.planner.security.quotas import QuotaAlteration
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.wire.message_types.alter_client_quotas import AlterClientQuotas
    from cordwood.wire.message_types.describe_client_quotas import DescribeClientQuotas

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
"""Selects every entity that has such a part, by whatever name."""

ENTRIES_PER_STEP: Final = 100


class QuotaRooms(Protocol):
    """The rooms of a node that these handlers need."""

    image: ClusterImage
    loop: Loop
    reports: Reports


def describe_quotas(rooms: QuotaRooms, request: Request[DescribeClientQuotas]) -> Steps:
    body = yield from request.read()
    try:
        if (denied := request.judge.refusal(Operation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER)) is not None:
            raise denied
        exactly, somehow = _asked(body.components)
    except ProtocolError as refusal:
        request.answer(**status(refusal), entries=None)
        return
    parts_asked = len(exactly) + len(somehow)
    found = [
        (entity, quotas)
        for entity, quotas in rooms.image.quotas.by_entity.items()
        if exactly.issubset(entity)
        and somehow.issubset(part.of for part in entity)
        and (not body.strict or len(entity) == parts_asked)
    ]
    request.answer(**status(None), entries=Made(found, lambda each: _described(*each)))


def _asked(components: Sequence[DescribeClientQuotas.RequestComponent]) -> tuple[frozenset[Part], frozenset[Named]]:
    """The parts that an entity has to have, and those that it has to have by any name. Raises ProtocolError."""
    exactly: dict[Named, Part] = {}
    somehow: set[Named] = set()
    for each in components:
        try:
            of = Named(each.entity_type)
        except ValueError:
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{each.entity_type}' not supported"
            ) from None
        if of in exactly or of in somehow:
            raise _not_askable(f"Duplicate filter component entity type '{of}'")
        if each.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise _not_askable(f"Unexpected match type: {each.match_type}")
        if (each.match is None) is (each.match_type == EXACT):
            does = "lacks" if each.match is None else "has"
            raise _not_askable(f"The filter component of '{of}' {does} a name, which its match type forbids")
        if each.match_type == SPECIFIED:
            somehow.add(of)
        else:
            exactly[of] = Part(of, each.match)
    if Named.IP in {*exactly, *somehow} and len(components) > 1:
        raise _not_askable(
            "Invalid entity filter component combination: IP filter component should not be used with user or "
            "clientId filter component."
        )
    return frozenset(exactly.values()), frozenset(somehow)


def _not_askable(reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, reason)


def _described(entity: Entity, quotas: Quotas) -> DescribeClientQuotas.AnswerEntry:
    return {
        "entity": [{"entity_type": part.of, "entity_name": part.name} for part in entity],
        "values": [{"key": key, "value": value} for key, value in sorted(quotas.items())],
    }


def alter_quotas(rooms: QuotaRooms, request: Request[AlterClientQuotas]) -> Steps:
    body = yield from request.read()
    denied = request.judge.refusal(Operation.ALTER_CONFIGS, ResourceKind.CLUSTER)
    asked: list[EntityChange | ProtocolError] = []
    seen: set[Entity] = set()
    for number, each in enumerate(body.entries, 1):
        if not number % ENTRIES_PER_STEP:
            yield
        change = _change(each) if denied is None else denied
        if not isinstance(change, ProtocolError):
            if change[0] in seen:
                change = ProtocolError(ErrorCode.INVALID_REQUEST, "The request names an entity twice.")
            else:
                seen.add(change[0])
        asked.append(change)
    wanted = [each for each in asked if not isinstance(each, ProtocolError)]

    def altered(results: dict[Entity, QuotaAlteration | ProtocolError] | Exception) -> None:
        outcomes = dict(each_outcome(rooms.reports, results, [entity for entity, _ in wanted]))

        def result(
            pair: tuple[AlterClientQuotas.RequestEntry, EntityChange | ProtocolError],
        ) -> AlterClientQuotas.AnswerEntry:
            entry, change = pair
            return {
                **status(change if isinstance(change, ProtocolError) else outcomes[change[0]]),
                "entity": [{"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity],
            }

        request.answer(entries=Made(list(zip(body.entries, asked, strict=True)), result))

    if not wanted:
        altered({})
        return
    rooms.loop.effects.metadata(lambda writer: writer.alter_quotas(wanted, validate_only=body.validate_only), altered)


def _change(entry: AlterClientQuotas.RequestEntry) -> EntityChange | ProtocolError:
    try:
        entity = entity_of((each.entity_type, each.entity_name) for each in entry.entity)
    except InvalidQuota as reason:
        return ProtocolError(ErrorCode.INVALID_REQUEST, str(reason))
    return entity, [QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops]


HANDLERS = (
    serves(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, describe_quotas),
    serves(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, alter_quotas),
)

"""Rules of access: DescribeAcls, CreateAcls, DeleteAcls.

Without an authorizer there are no rules, and all three are refused with SECURITY_DISABLED. Kafka answers the same way,
and clients that copy rules (MirrorMaker) take this answer for "there are none" and go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from cordwood.model.acls import Acl, AclFilter, Pattern, Permission
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.outcomes import each_outcome, status
from cordwood.node.requests.request import Made, Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.cluster.planner.security.acls import AclAlteration
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.requests.access import Access
    from cordwood.wire.message_types.create_acls import CreateAcls
    from cordwood.wire.message_types.delete_acls import DeleteAcls
    from cordwood.wire.message_types.describe_acls import DescribeAcls

    Filter = DescribeAcls.Request | DeleteAcls.RequestFilter

_DISABLED = "No Authorizer is configured."
"""Kafka's own text, which tools look for."""

ANY, MATCH = 1, 2
"""Values of filters that no rule has: any value; rules that cover the name."""

LOOKED_AT_PER_STEP = 2_000
"""Rules that a filter looks at in one step."""


class AclRooms(Protocol):
    """The rooms of a node that these handlers need."""

    access: Access
    image: ClusterImage
    loop: Loop
    reports: Reports


def _refusal(rooms: AclRooms, request: Request[Any], operation: Operation) -> ProtocolError | None:
    if rooms.access.rules is None:
        return ProtocolError(ErrorCode.SECURITY_DISABLED, _DISABLED)
    return request.judge.refusal(operation, ResourceKind.CLUSTER)


def describe_acls(rooms: AclRooms, request: Request[DescribeAcls]) -> Steps:
    body = yield from request.read()
    found: list[Acl] = []
    try:
        refusal = _refusal(rooms, request, Operation.DESCRIBE)
        if refusal is not None:
            raise refusal
        wanted = _filter(body)
    except ProtocolError as problem:
        request.answer(**status(problem), resources=())
        return
    yield from _select(wanted, list(rooms.image.acls), found)
    by_resource: dict[tuple[ResourceKind, str, Pattern], list[Acl]] = {}
    for acl in sorted(found):
        by_resource.setdefault((acl.kind, acl.name, acl.pattern), []).append(acl)
    request.answer(
        error_code=ErrorCode.NONE,
        error_message=None,
        resources=Made(list(by_resource.items()), lambda each: _described(*each)),
    )


def _described(resource: tuple[ResourceKind, str, Pattern], acls: Sequence[Acl]) -> DescribeAcls.AnswerResource:
    kind, name, pattern = resource
    return {
        "resource_type": kind,
        "resource_name": name,
        "pattern_type": pattern,
        "acls": [
            {
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            for acl in acls
        ],
    }


def create_acls(rooms: AclRooms, request: Request[CreateAcls]) -> Steps:
    body = yield from request.read()
    refusal = _refusal(rooms, request, Operation.ALTER)
    asked = [_acl(each) if refusal is None else refusal for each in body.creations]
    acls = list(dict.fromkeys(each for each in asked if isinstance(each, Acl)))

    def created(results: dict[Acl, AclAlteration | ProtocolError] | Exception) -> None:
        outcomes = dict(each_outcome(rooms.reports, results, acls))
        request.answer(results=[status(outcomes[each] if isinstance(each, Acl) else each) for each in asked])

    if not acls:
        created({})
        return
    wall_ms = rooms.loop.now.wall_ms
    rooms.loop.effects.metadata(lambda writer: writer.create_acls(acls, wall_ms), created)


def _acl(asked: CreateAcls.RequestCreation) -> Acl | ProtocolError:
    try:
        return Acl(
            ResourceKind(asked.resource_type),
            Pattern(asked.resource_pattern_type),
            asked.resource_name,
            asked.principal,
            asked.host,
            Operation(asked.operation),
            Permission(asked.permission_type),
        )
    except ValueError as problem:
        return _not_known(problem)


def delete_acls(rooms: AclRooms, request: Request[DeleteAcls]) -> Steps:
    body = yield from request.read()
    refusal = _refusal(rooms, request, Operation.ALTER)
    matching: list[list[Acl] | ProtocolError] = []
    rules = list(rooms.image.acls)
    for each in body.filters:
        found: list[Acl] = []
        try:
            if refusal is not None:
                raise refusal
            yield from _select(_filter(each), rules, found)
            matching.append(sorted(found))
        except ProtocolError as problem:
            matching.append(problem)
    acls = list(dict.fromkeys(acl for found in matching if isinstance(found, list) for acl in found))

    def deleted(results: dict[Acl, AclAlteration | ProtocolError] | Exception) -> None:
        outcomes = dict(each_outcome(rooms.reports, results, acls))

        def result(found: list[Acl] | ProtocolError) -> DeleteAcls.AnswerFilterResult:
            if isinstance(found, ProtocolError):
                return {**status(found), "matching_acls": ()}
            return {**status(None), "matching_acls": Made(found, lambda acl: _deleted(acl, outcomes[acl]))}

        request.answer(filter_results=Made(matching, result))

    if not acls:
        deleted({})
        return
    wall_ms = rooms.loop.now.wall_ms
    rooms.loop.effects.metadata(lambda writer: writer.delete_acls(acls, wall_ms), deleted)


def _deleted(acl: Acl, outcome: object) -> DeleteAcls.AnswerMatchingAcl:
    return {
        **status(outcome),
        "resource_type": acl.kind,
        "resource_name": acl.name,
        "pattern_type": acl.pattern,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _select(wanted: AclFilter, rules: Sequence[Acl], found: list[Acl]) -> Steps:
    for start in range(0, len(rules), LOOKED_AT_PER_STEP):
        if start:
            yield
        found += filter(wanted.selects, rules[start : start + LOOKED_AT_PER_STEP])


def _filter(asked: Filter) -> AclFilter:
    """Raises ProtocolError for numbers that stand for nothing."""
    kind, pattern = asked.resource_type_filter, asked.pattern_type_filter
    try:
        patterns: Iterable[Pattern] = Pattern if pattern in (ANY, MATCH) else (Pattern(pattern),)
        return AclFilter(
            None if kind == ANY else ResourceKind(kind),
            asked.resource_name_filter,
            tuple(patterns),
            pattern == MATCH,
            asked.principal_filter,
            asked.host_filter,
            None if asked.operation == ANY else Operation(asked.operation),
            None if asked.permission_type == ANY else Permission(asked.permission_type),
        )
    except ValueError as problem:
        raise _not_known(problem) from None


def _not_known(problem: ValueError) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, f"The request has a number that stands for nothing: {problem}.")


HANDLERS = (
    serves(ApiKey.DESCRIBE_ACLS, 1, 3, describe_acls),
    serves(ApiKey.CREATE_ACLS, 1, 3, create_acls),
    serves(ApiKey.DELETE_ACLS, 1, 3, delete_acls),
)

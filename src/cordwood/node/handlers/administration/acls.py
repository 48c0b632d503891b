"""Access control lists: DescribeAcls, CreateAcls, DeleteAcls, all refused with SECURITY_DISABLED.

There is no authorizer, so there are no lists. Kafka without an authorizer answers the same way, and clients that copy
access control lists (MirrorMaker) take this answer for "there are none" and go on. Such clients report a closed
connection as a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.outcomes import status
from cordwood.node.requests.request import Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.create_acls import CreateAcls
    from cordwood.wire.message_types.delete_acls import DeleteAcls
    from cordwood.wire.message_types.describe_acls import DescribeAcls

_REFUSAL = status(ProtocolError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."))
"""Kafka's own text, which tools look for."""


def describe_acls(rooms: object, request: Request[DescribeAcls]) -> Steps:
    yield from request.read()
    request.answer(**_REFUSAL, resources=())


def create_acls(rooms: object, request: Request[CreateAcls]) -> Steps:
    body = yield from request.read()
    request.answer(results=[_REFUSAL] * len(body.creations))


def delete_acls(rooms: object, request: Request[DeleteAcls]) -> Steps:
    body = yield from request.read()
    request.answer(filter_results=[{**_REFUSAL, "matching_acls": ()}] * len(body.filters))


HANDLERS = (
    serves(ApiKey.DESCRIBE_ACLS, 1, 3, describe_acls),
    serves(ApiKey.CREATE_ACLS, 1, 3, create_acls),
    serves(ApiKey.DELETE_ACLS, 1, 3, delete_acls),
)

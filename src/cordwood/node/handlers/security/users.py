"""Users: DescribeUserScramCredentials, AlterUserScramCredentials.

A client sends a salted password, from which the broker makes the keys that it stores. Nobody can compute the password
from either. An answer tells mechanisms and iterations, and no key.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from cordwood.cluster.planner.security.users import UserChange
from cordwood.model.credentials import ScramKeys, ScramMechanism
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.outcomes import each_outcome, status
from cordwood.node.requests.request import Made, Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.cluster.planner.security.users import UserAlteration
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.wire.message_types.alter_user_scram_credentials import AlterUserScramCredentials
    from cordwood.wire.message_types.describe_user_scram_credentials import DescribeUserScramCredentials


KEYS_PER_STEP = 100
"""Keys made in one step: each takes some microseconds."""


class UserRooms(Protocol):
    """The rooms of a node that these handlers need."""

    image: ClusterImage
    loop: Loop
    reports: Reports


def describe_users(rooms: UserRooms, request: Request[DescribeUserScramCredentials]) -> Steps:
    body = yield from request.read()
    refusal = request.judge.refusal(Operation.DESCRIBE, ResourceKind.CLUSTER)
    if refusal is not None:
        request.answer(**status(refusal), results=())
        return
    rows = rooms.image.users.rows
    # Kafka takes an empty list for all users, too.
    asked = Counter(each.name for each in body.users) if body.users else Counter(sorted(rows))

    def described(name: str) -> DescribeUserScramCredentials.AnswerResult:
        row = rows.get(name)
        if asked[name] > 1:
            refusal = ProtocolError(
                ErrorCode.DUPLICATE_RESOURCE,
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
            )
            return {"user": name, **status(refusal), "credential_infos": ()}
        if row is None:
            refusal = ProtocolError(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Attempt to describe a user credential that does not exist: {name}",
            )
            return {"user": name, **status(refusal), "credential_infos": ()}
        infos: list[DescribeUserScramCredentials.AnswerCredentialInfo] = [
            {"mechanism": int(mechanism), "iterations": keys.iterations} for mechanism, keys in row.keys.items()
        ]
        return {"user": name, **status(None), "credential_infos": infos}

    request.answer(results=Made(list(asked), described))


def alter_users(rooms: UserRooms, request: Request[AlterUserScramCredentials]) -> Steps:
    body = yield from request.read()
    refused: dict[str, ProtocolError] = {}
    denied = request.judge.refusal(Operation.ALTER, ResourceKind.CLUSTER)
    if denied is not None:
        named = dict.fromkeys([*(each.name for each in body.deletions), *(each.name for each in body.upsertions)])
        request.answer(results=[{"user": name, **status(denied)} for name in named])
        return
    changes = [UserChange(each.name, each.mechanism, None) for each in body.deletions]
    for number, each in enumerate(body.upsertions, 1):
        if not number % KEYS_PER_STEP:
            yield
        try:
            keys = _keys(each)
        except ProtocolError as refusal:
            refused.setdefault(each.name, refusal)
            continue
        changes.append(UserChange(each.name, each.mechanism, keys))
    names = list(dict.fromkeys([*(change.name for change in changes), *refused]))
    changes = [change for change in changes if change.name not in refused]

    def altered(results: dict[str, UserAlteration | ProtocolError] | Exception) -> None:
        outcomes: dict[str, UserAlteration | ProtocolError] = {**refused}
        outcomes.update(each_outcome(rooms.reports, results, [name for name in names if name not in refused]))
        request.answer(results=[{"user": name, **status(outcomes[name])} for name in names])

    rooms.loop.effects.metadata(lambda writer: writer.alter_users(changes), altered)


def _keys(asked: AlterUserScramCredentials.RequestUpsertion) -> ScramKeys:
    """The keys to store. Raises ProtocolError."""
    # Imported here, to keep a broker's start quick.
    from cordwood.security.scram import keys_of_salted

    try:
        mechanism = ScramMechanism(asked.mechanism)
    except ValueError:
        raise ProtocolError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None
    if len(asked.salted_password) != mechanism.key_bytes:
        raise ProtocolError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"A salted password of {mechanism.sasl_name} has {mechanism.key_bytes} bytes, not "
            f"{len(asked.salted_password)}.",
        )
    return keys_of_salted(mechanism, asked.salted_password, asked.salt, asked.iterations)


HANDLERS = (
    serves(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, describe_users),
    serves(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, alter_users),
)

"""Users of the cluster: made, listed and removed through the requests of Kafka's tools, by any broker."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from confluent_kafka.admin import (
    ScramCredentialInfo,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.admin import ScramMechanism as ClientMechanism

from cordwood.administration.access.may_describe import check_may_describe
from cordwood.model.credentials import USUAL_SHAPE, ScramMechanism
from cordwood.model.failure import ExitCode, Failure, near_names

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cordwood.administration.connection import Connection


class User(NamedTuple):
    name: str
    iterations: dict[ScramMechanism, int]
    """The iterations of the keys for each mechanism."""

    def as_json(self) -> dict[str, Any]:
        keys = [{"mechanism": each.sasl_name, "iterations": count} for each, count in self.iterations.items()]
        return {"user": self.name, "keys": keys}


def users(connection: Connection) -> list[User]:
    """All users, by name. Raises Failure."""
    check_may_describe(connection)
    described = connection.ask(lambda admin: cast("Future[Any]", admin.describe_user_scram_credentials()))
    return [
        User(
            name,
            {ScramMechanism(info.mechanism.value): info.iterations for info in described[name].scram_credential_infos},
        )
        for name in sorted(described)
    ]


def existing_user(connection: Connection, name: str) -> User:
    """The user of this name. Raises Failure, with similar names, if there is none."""
    known = {user.name: user for user in users(connection)}
    if name not in known:
        raise Failure(
            "RESOURCE_NOT_FOUND",
            f"there is no user {name!r}",
            near_names(name, known)
            or f"`cordwood user list` lists the users; `cordwood user add {name}` adds this one",
            ExitCode.NOT_FOUND,
        )
    return known[name]


def add_user(
    connection: Connection,
    name: str,
    password: str,
    mechanisms: Sequence[ScramMechanism],
    iterations: int,
    *,
    dry_run: bool = False,
) -> None:
    """Makes a user. Raises Failure, also for a user that exists. `dry_run`: only looks whether the user exists."""
    if any(user.name == name for user in users(connection)):
        raise Failure(
            "DUPLICATE_RESOURCE", f"there is a user {name!r} already", f"`cordwood user password {name}` changes it"
        )
    if not dry_run:
        set_password(connection, name, password, dict.fromkeys(mechanisms, iterations))


def set_password(connection: Connection, name: str, password: str, iterations: dict[ScramMechanism, int]) -> None:
    """Writes new keys for these mechanisms, with a new salt for each. Raises Failure."""
    changes: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(
            name,
            ScramCredentialInfo(ClientMechanism(int(mechanism)), count),
            password.encode(),
            os.urandom(USUAL_SHAPE.salt_bytes),
        )
        for mechanism, count in iterations.items()
    ]
    connection.ask_all(lambda admin: admin.alter_user_scram_credentials(changes))


def remove_user(connection: Connection, user: User) -> None:
    """Removes all keys of a user. Raises Failure."""
    changes: list[UserScramCredentialAlteration] = [
        UserScramCredentialDeletion(user.name, ClientMechanism(int(mechanism))) for mechanism in user.iterations
    ]
    connection.ask_all(lambda admin: admin.alter_user_scram_credentials(changes))

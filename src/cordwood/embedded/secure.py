"""What a secure broker of this process has beside a plain one: an authority, a certificate, and users.

The authority, the certificates and the keys of users are made once for a process and kept: all secure brokers of a
process are trusted by one certificate, and the second one starts as quickly as a plain one. Nothing of them is written
to a disk but the keys of users, which are in the metadata of a broker with a data directory.

`cryptography` takes tens of milliseconds to import: only secure brokers import this module.
"""

from __future__ import annotations

import datetime
import os
import secrets
import socket
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from cordwood.broker.secure import authority
from cordwood.broker.secure.client_files import ADMIN, SecureDirectory
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.planner.security.users import UserChange, check_user_name
from cordwood.model.credentials import MIN_ITERATIONS, USUAL_SHAPE, ScramKeys, ScramMechanism
from cordwood.model.errors import ProtocolError
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER, principals_in
from cordwood.model.settings.listeners import SASL_SSL, SSL, ListenerAddress, brokers_apart
from cordwood.model.settings.setting import InvalidSetting
from cordwood.security.connection_settings import ClientLogIn, ClientTls, Security
from cordwood.security.scram import make_keys

_HERE: Final = ("localhost", "127.0.0.1", "::1")
_PASSWORD_BYTES: Final = 12
_OF_CLIENTS: Final = ScramMechanism.SHA_256
_MECHANISMS: Final = tuple(ScramMechanism)
_SUPER_USERS: Final = "super.users"
_KEPT: Final = 1_000
"""How many certificates, and how many users' keys, a process keeps."""


class _Authority(NamedTuple):
    key: str
    certificate: str


class SecureSide:
    """The users of a secure broker, or of the secure brokers of a cluster, and the settings that both sides need."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """`users` has passwords by name. There is always an administrator, with a password of its own if none is
        given."""
        self._passwords = {ADMIN: _admins_password(), **_checked(users)}

    def settings(
        self, host: str, port: int, given: Mapping[str, str], data_dir: str | os.PathLike[str] | None
    ) -> dict[str, str]:
        """The settings of a broker with one listener of clients, at this address, and in a cluster with another one for
        brokers. Raises InvalidSetting if one of them is given, or if the directory has users of another kind."""
        if data_dir is not None and SecureDirectory(os.fspath(data_dir)).is_complete:
            # The files of its administrator would no longer work.
            raise InvalidSetting(
                f"{os.fspath(data_dir)} belongs to `cordwood serve --secure`, which made its authority and its users: "
                "serve it so, or give another data_dir"
            )
        keystore = _keystore(host)
        end_of_key = keystore.index("-----BEGIN CERTIFICATE-----")
        made = {
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "inter.broker.listener.name": SASL_SSL,
            "listeners": str(ListenerAddress(SASL_SSL, host, port)),
            "ssl.keystore.certificate.chain": keystore[end_of_key:],
            "ssl.keystore.key": keystore[:end_of_key],
        }
        if given.get("cluster.store"):
            protocols = (f"{SASL_SSL}:{SASL_SSL}",)
            made |= brokers_apart(ListenerAddress(SASL_SSL, host, port), protocols, 0, speaking=SSL)
            inner = f"listener.name.{made['inter.broker.listener.name'].lower()}"
            made[f"{inner}.ssl.client.auth"] = "required"
            made[f"{inner}.ssl.truststore.certificates"] = _authority().certificate
        if twice := sorted(made.keys() & given.keys()):
            raise InvalidSetting(f"a secure broker makes {twice[0]} itself, and it is given")
        admins = dict.fromkeys([f"User:{ADMIN}", *principals_in(given.get(_SUPER_USERS, ""))])
        return {**made, _SUPER_USERS: ";".join(admins)}

    def client_settings(self, user: str, servers: str) -> dict[str, Any]:
        """The settings of a client on librdkafka that logs in as the user, or as the administrator. Raises ValueError
        for a name without a password."""
        user = user or ADMIN
        if user not in self._passwords:
            raise ValueError(f"there is no user {user!r}: users= named {', '.join(self._passwords)}")
        log_in = ClientLogIn(_OF_CLIENTS.sasl_name, user, self._passwords[user])
        of_client = Security(ClientTls(ca_pem=_authority().certificate), log_in)
        return {"bootstrap.servers": servers, **of_client.for_librdkafka()}

    async def write_users(self, writer: MetadataWriter) -> None:
        """Writes what the cluster's metadata lacks of the users. Several brokers of a cluster may do so at once. Raises
        InvalidSetting for a user that cannot be written, and StoreFailure."""
        image = writer.image
        changes = [
            UserChange(name, mechanism, keys)
            for name, password in self._passwords.items()
            for mechanism in _MECHANISMS
            if (keys := _keys(name, password, mechanism)) != _present(writer, name, mechanism)
        ]
        for name, outcome in (await writer.alter_users(changes)).items():
            if isinstance(outcome, ProtocolError):
                raise InvalidSetting(f"the user {name!r} cannot be made: {outcome.message}")
        assert image.users.rows.keys() >= self._passwords.keys()


def _checked(users: object) -> Mapping[str, str]:
    if not isinstance(users, Mapping):
        raise TypeError(f"users must be a mapping of names to passwords, not {type(users).__name__}")
    for name, password in users.items():
        if not (isinstance(name, str) and isinstance(password, str)):
            raise TypeError("the name and the password of a user must be str")
        try:
            check_user_name(name)
        except ProtocolError as refusal:
            raise InvalidSetting(f"the user {name!r} cannot be made: {refusal.message}") from None
        if not password:
            raise InvalidSetting(f"the password of the user {name!r} is empty")
    return users


@cache
def _admins_password() -> str:
    return secrets.token_urlsafe(_PASSWORD_BYTES)


@cache
def _authority() -> _Authority:
    return _Authority(*authority.new_authority(_now()))


@lru_cache(_KEPT)
def _keystore(host: str) -> str:
    hosts = {*_HERE, socket.gethostname(), host} - {""}
    return authority.new_keystore(*_authority(), hosts, _now())


@lru_cache(_KEPT)
def _keys(name: str, password: str, mechanism: ScramMechanism) -> ScramKeys:
    """The keys of a user: with the fewest rounds that are allowed, since tests log in often."""
    return make_keys(mechanism, password, os.urandom(USUAL_SHAPE.salt_bytes), MIN_ITERATIONS)


def _present(writer: MetadataWriter, name: str, mechanism: ScramMechanism) -> ScramKeys | None:
    row = writer.image.users.rows.get(name)
    return None if row is None else row.keys.get(mechanism)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)

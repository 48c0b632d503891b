"""Prepares a secure start: the settings, the authority and certificate, and the administrator with its files.

The administrator is a row of the store before its password is in a file, and the certificate is written last: a start
that was interrupted is begun anew. What a complete start left is taken as it is.
"""

from __future__ import annotations

import datetime
import os
import secrets
import socket
from collections.abc import Iterator
from typing import Final

from cordwood.broker.secure import authority
from cordwood.broker.secure.client_files import ADMIN, SecureDirectory, make_private_directory, write_private
from cordwood.broker.secure.first_users import add_first_user
from cordwood.model.credentials import DEFAULT_ITERATIONS, ScramMechanism
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER, principals_in
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.listeners import EVERY_INTERFACE, SASL_SSL, Listener, host_and_port
from cordwood.model.settings.setting import InvalidSetting

PAGE: Final = "docs/security.md"
_HERE: Final = ("localhost", "127.0.0.1", "::1")
_OWN: Final = ("ssl.keystore.", "ssl.client.auth", "sasl.enabled.mechanisms", "authorizer.class.name", "listener.name.")
"""The beginnings of settings that a secure start makes itself."""
_PASSWORD_BYTES: Final = 24


def prepare(settings: BrokerSettings) -> tuple[BrokerSettings, SecureDirectory, str]:
    """The settings of a secure broker, and a remark about its certificate, or nothing. The directory has all files when
    this returns. Raises Failure, OSError."""
    directory = SecureDirectory(settings.data_directories[0])
    secure = _secured(settings, directory)
    (listener,) = secure.listener_list
    hosts = {*_HERE, *_named(listener)}
    now = datetime.datetime.now(datetime.UTC)
    if directory.is_complete:
        return secure, directory, _renew(directory, hosts, now)
    _begin(secure, directory, hosts, listener, now)
    return secure, directory, ""


def _secured(settings: BrokerSettings, directory: SecureDirectory) -> BrokerSettings:
    if settings.cluster_store:
        raise _contradiction("--secure is for one broker by itself, and cluster.store is set")
    for name in sorted(settings.texts):
        if name.startswith(_OWN):
            raise _contradiction(f"--secure makes {name} itself, and it is set")
    if len(settings.listener_list) != 1:
        raise _contradiction("--secure has one listener, and listeners names several")
    (listener,) = settings.listener_list
    admins = dict.fromkeys([f"User:{ADMIN}", *principals_in(settings.super_users)])
    texts = {
        **settings.texts,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "inter.broker.listener.name": SASL_SSL,
        "listeners": str(listener.address._replace(name=SASL_SSL)),
        "ssl.keystore.location": directory.keystore,
        "super.users": ";".join(admins),
    }
    if listener.advertised is not None:
        texts["advertised.listeners"] = str(listener.advertised._replace(name=SASL_SSL))
    try:
        return BrokerSettings.from_texts(texts)
    except InvalidSetting as error:
        raise Failure("INVALID_CONFIG", str(error), "", ExitCode.USAGE) from error


def _contradiction(message: str) -> Failure:
    hint = f"without --secure all is set by hand: {PAGE} says how, also for the brokers of a cluster"
    return Failure("USAGE", message, hint, ExitCode.USAGE)


def _named(listener: Listener) -> Iterator[str]:
    """The hosts by which clients may know this broker."""
    yield socket.gethostname()
    if listener.advertised is not None:
        yield listener.advertised.host
    if listener.address.host not in EVERY_INTERFACE:
        yield listener.address.host


def _begin(
    settings: BrokerSettings, directory: SecureDirectory, hosts: set[str], listener: Listener, now: datetime.datetime
) -> None:
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    add_first_user(settings, ADMIN, password, list(ScramMechanism), DEFAULT_ITERATIONS, replace=True)
    make_private_directory(directory.path)
    key, certificate = authority.new_authority(now)
    write_private(directory.authority_key, key)
    write_private(directory.authority, certificate)
    told = listener.advertised or listener.address
    directory.write_files(ADMIN, password, ScramMechanism.SHA_512.sasl_name, host_and_port(told.host, told.port))
    write_private(directory.keystore, authority.new_keystore(key, certificate, hosts, now))


def _renew(directory: SecureDirectory, hosts: set[str], now: datetime.datetime) -> str:
    """Makes a new certificate if the present one ends soon, or lacks a host. Returns what was done, and why."""
    with open(directory.keystore, encoding="utf-8") as file:
        reason = authority.why_renew(file.read(), hosts, now)
    if not reason:
        return ""
    if not os.path.exists(directory.authority_key):
        return f"{reason}, and {directory.authority_key} is not there to sign another"
    with open(directory.authority_key, encoding="utf-8") as key, open(directory.authority, encoding="utf-8") as signer:
        write_private(directory.keystore, authority.new_keystore(key.read(), signer.read(), hosts, now))
    return f"{reason}: the broker has signed another"

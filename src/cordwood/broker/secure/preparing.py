"""Prepares a secure start: the settings, the authority and certificate, and the administrator with its files.

The administrator is a row of the store before its password is in a file, and the certificate is written last: a start
that was interrupted is begun anew. What a complete start left is taken as it is.

Brokers of one machine share the directory: the workers of a data directory, and those of `cordwood cluster up`. They
have a listener of their own, at which each proves by the certificate that it belongs to them: the authority signs for
brokers alone.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import secrets
import socket
from collections.abc import Iterator
from typing import Final

from cordwood.broker.secure import authority
from cordwood.broker.secure.client_files import ADMIN, SecureDirectory, make_private_directory, write_private
from cordwood.cluster.stores.interface import MetadataStore
from cordwood.model.credentials import DEFAULT_ITERATIONS, ScramMechanism
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER, principals_in
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.by_listener import listener_setting
from cordwood.model.settings.listeners import (
    EVERY_INTERFACE,
    SASL_SSL,
    SSL,
    Listener,
    ListenerAddress,
    brokers_apart,
    host_and_port,
)
from cordwood.model.settings.setting import InvalidSetting
from cordwood.model.settings.tls_settings import REQUIRED

PAGE: Final = "docs/security.md"
_HERE: Final = ("localhost", "127.0.0.1", "::1")
_OWN: Final = ("ssl.keystore.", "ssl.client.auth", "sasl.enabled.mechanisms", "authorizer.class.name", "listener.name.")
"""The beginnings of settings that a secure start makes itself."""
_OF_METRICS: Final = "listener.name.https."
"""The beginning of settings for metrics over HTTPS, which a secure start leaves to its administrator."""
_OF_ADDRESSES: Final = ("listeners", "advertised.listeners", "listener.security.", "inter.broker.", "super.users")
"""Those of settings that a secure cluster makes besides."""
_PASSWORD_BYTES: Final = 24
_MECHANISMS: Final = list(ScramMechanism)


def prepare(settings: BrokerSettings) -> tuple[BrokerSettings, SecureDirectory, str]:
    """The settings of a secure broker, and a remark about its certificate, or nothing. The directory has all files when
    this returns. Raises Failure, OSError."""
    directory = SecureDirectory(settings.data_directories[0])
    secure = _secured(settings, directory)
    (listener,) = secure.listener_list
    hosts = {*_HERE, *_named(listener)}
    if directory.is_complete:
        return secure, directory, _renew(directory, hosts)
    # Imported by the first start alone: what repairs a store comes along, and takes longer than all else here.
    from cordwood.broker.secure.first_users import add_first_user

    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    add_first_user(secure, ADMIN, password, _MECHANISMS, DEFAULT_ITERATIONS, replace=True)
    told = listener.advertised or listener.address
    _write(directory, hosts, host_and_port(told.host, told.port), password)
    return secure, directory, ""


async def prepare_cluster(directory: SecureDirectory, store: MetadataStore, servers: str) -> str:
    """Prepares the brokers of a cluster on this machine: the authority, a certificate that they share, and the
    administrator in their store. Returns a remark about the certificate, or nothing. Raises Failure, StoreFailure,
    OSError."""
    hosts = {*_HERE, socket.gethostname()}
    if directory.is_complete:
        return _renew(directory, hosts)
    from cordwood.broker.secure.first_users import user_with, write_user

    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    changes = await asyncio.to_thread(user_with, ADMIN, password, _MECHANISMS, DEFAULT_ITERATIONS)
    await write_user(store, BrokerSettings.from_texts({}), changes, replace=True)
    _write(directory, hosts, servers, password)
    return ""


def of_cluster(directory: SecureDirectory, clients: ListenerAddress, inner_port: int) -> dict[str, str]:
    """The settings of a broker of such a cluster."""
    return {
        **_of_clients(directory, clients),
        "super.users": f"User:{ADMIN}",
        **between_brokers(directory, clients, (f"{SASL_SSL}:{SASL_SSL}",), inner_port),
    }


def between_brokers(
    directory: SecureDirectory, clients: ListenerAddress, protocols: tuple[str, ...], port: int
) -> dict[str, str]:
    """The settings that give the brokers of this machine a listener of their own."""
    texts = brokers_apart(clients, protocols, port, speaking=SSL)
    name = texts["inter.broker.listener.name"]
    return {
        **texts,
        listener_setting(name, "ssl.client.auth"): REQUIRED,
        listener_setting(name, "ssl.truststore.location"): directory.authority,
    }


def refuse_own(names: Iterator[str]) -> None:
    """Raises Failure for a setting of a secure cluster that its start makes itself."""
    for name in sorted(names):
        if name.startswith((*_OWN, *_OF_ADDRESSES)) and not name.startswith(_OF_METRICS):
            raise _contradiction(f"--secure makes {name} itself, and it is set")


def _secured(settings: BrokerSettings, directory: SecureDirectory) -> BrokerSettings:
    if settings.cluster_store:
        raise _contradiction("--secure is for the brokers of one machine, and cluster.store is set")
    for name in sorted(settings.texts):
        if name.startswith(_OWN) and not name.startswith(_OF_METRICS):
            raise _contradiction(f"--secure makes {name} itself, and it is set")
    if len(settings.listener_list) != 1:
        raise _contradiction("--secure has one listener, and listeners names several")
    (listener,) = settings.listener_list
    admins = dict.fromkeys([f"User:{ADMIN}", *principals_in(settings.super_users)])
    texts = {
        **settings.texts,
        **_of_clients(directory, listener.address._replace(name=SASL_SSL)),
        "inter.broker.listener.name": SASL_SSL,
        "super.users": ";".join(admins),
    }
    if listener.advertised is not None:
        texts["advertised.listeners"] = str(listener.advertised._replace(name=SASL_SSL))
    try:
        return BrokerSettings.from_texts(texts)
    except InvalidSetting as error:
        raise Failure("INVALID_CONFIG", str(error), "", ExitCode.USAGE) from error


def _of_clients(directory: SecureDirectory, clients: ListenerAddress) -> dict[str, str]:
    return {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "listeners": str(clients),
        "ssl.keystore.location": directory.keystore,
    }


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


def _write(directory: SecureDirectory, hosts: set[str], servers: str, password: str) -> None:
    make_private_directory(directory.path)
    now = _now()
    key, certificate = authority.new_authority(now)
    write_private(directory.authority_key, key)
    write_private(directory.authority, certificate)
    directory.write_files(ADMIN, password, ScramMechanism.SHA_512.sasl_name, servers)
    write_private(directory.keystore, authority.new_keystore(key, certificate, hosts, now))


def _renew(directory: SecureDirectory, hosts: set[str]) -> str:
    """Makes a new certificate if the present one ends soon, or lacks a host. Returns what was done, and why."""
    now = _now()
    with open(directory.keystore, encoding="utf-8") as file:
        reason = authority.why_renew(file.read(), hosts, now)
    if not reason:
        return ""
    if not os.path.exists(directory.authority_key):
        return f"{reason}, and {directory.authority_key} is not there to sign another"
    with open(directory.authority_key, encoding="utf-8") as key, open(directory.authority, encoding="utf-8") as signer:
        write_private(directory.keystore, authority.new_keystore(key.read(), signer.read(), hosts, now))
    return f"{reason}: the broker has signed another"


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)

"""What tasks log in with: a delegation token, where the brokers have them, so that the password stays on the driver.

A driver has one token made and uses it for all its tasks, up to half of the token's life; then it has another one made.
Processes of one user find each other's token by its mark: the owner is its only renewer, which gives nobody anything.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cordwood.model.credentials import SCRAM_NAMES

if TYPE_CHECKING:
    from cordwood.client.brokers import Brokers
    from cordwood.client.delegation import HeldToken
    from cordwood.client.settings import ClientSettings
    from cordwood.security.connection_settings import Security

_log = logging.getLogger("cordwood.spark")

_ASKED_AGAIN_S: Final = 60.0
"""Brokers without tokens are asked again after this time: they may have been given a key."""
_KNOWN_WITHIN_S: Final = 5.0
"""Brokers hear of a new token through the metadata store, within milliseconds."""
_MOST_KEPT: Final = 16

_kept: dict[tuple[int, ClientSettings], tuple[Security, float]] = {}
"""What tasks log in with, and until when (`time.monotonic`), by process and settings."""


def for_tasks(settings: ClientSettings) -> ClientSettings:
    """The settings with a delegation token in place of the password; as they are where brokers have no tokens, and for
    log-ins by anything but SCRAM, since only a listener that takes SCRAM takes tokens. Asks the brokers at times."""
    sasl = settings.security.sasl
    if sasl is None or sasl.by_token or sasl.mechanism not in SCRAM_NAMES:
        return settings
    key = (os.getpid(), settings)
    kept = _kept.get(key)
    if kept is None or time.monotonic() >= kept[1]:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        kept = _kept[key] = _security_for_tasks(settings)
    return replace(settings, security=kept[0])


def _security_for_tasks(settings: ClientSettings) -> tuple[Security, float]:
    from cordwood.client.brokers import Brokers
    from cordwood.client.errors import ClientError, RequestRefused, VersionMismatch
    from cordwood.model.errors import ErrorCode

    brokers = Brokers(settings)
    try:
        held = _token(brokers, settings)
        security = _with_token(settings.security, held)
        _wait_until_known(replace(settings, security=security))
    except ClientError as failure:
        code = failure.code if isinstance(failure, RequestRefused) else None
        if code is not ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED and not isinstance(failure, VersionMismatch):
            _log.warning("tasks log in by the password: there is no delegation token for them: %s", failure)
        return settings.security, time.monotonic() + _ASKED_AGAIN_S
    finally:
        brokers.close()
    return security, time.monotonic() + _good_for_s(held)


def _token(brokers: Brokers, settings: ClientSettings) -> HeldToken:
    """The token of this user's drivers, or a new one. Raises ClientError."""
    from cordwood.client import delegation
    from cordwood.model.delegation_tokens import USER

    assert settings.security.sasl is not None
    name = settings.security.sasl.username
    me = f"{USER}:{name}"
    own = [
        held
        for held in delegation.describe(brokers, [name])
        if held.token.holders == (me, me, me) and _good_for_s(held) > 0
    ]
    return max(own, key=lambda held: held.token.expires_ms, default=None) or delegation.create(brokers, [name])


def _good_for_s(held: HeldToken) -> float:
    """For how long the token is given to new tasks, which may last as long again. By the broker's clock."""
    token = held.token
    return (token.expires_ms - (token.expires_ms - token.issued_ms) / 2) / 1000 - time.time()


def _with_token(security: Security, held: HeldToken) -> Security:
    assert security.sasl is not None
    log_in = replace(security.sasl, username=held.token.token_id, password=held.password, by_token=True)
    return replace(security, sasl=log_in)


def _wait_until_known(settings: ClientSettings) -> None:
    """Logs in at every broker. Raises ClientError if one of them does not take the token in time."""
    from cordwood.client.brokers import Brokers
    from cordwood.client.errors import SecurityFailure

    deadline_s = time.monotonic() + _KNOWN_WITHIN_S
    while True:
        brokers = Brokers(settings)
        try:
            for link in brokers.all():
                link.connect()
            return
        except SecurityFailure:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(settings.retry_backoff_ms / 1000)
        finally:
            brokers.close()

"""Warnings of a start about listeners that protect less than their operator may think."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from cordwood.model.credentials import PLAIN
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.listeners import Listener
from cordwood.model.settings.tls_settings import REQUIRED

logger = logging.getLogger("cordwood.broker")


def warn_of_listeners(settings: BrokerSettings, *, clustered: bool) -> None:
    for warning in _warnings(settings, clustered=clustered):
        logger.warning("%s", warning)


def _warnings(settings: BrokerSettings, *, clustered: bool) -> Iterator[str]:
    listeners = settings.listener_list
    if len(listeners) == 1 and clustered:
        yield (
            f"clients and brokers share the listener {listeners[0].name}: give brokers one of their own (listeners, "
            "inter.broker.listener.name), so that clients can neither act as brokers nor take their connections"
        )
    for listener in listeners:
        asks = settings.asks_at(listener)
        if asks is not None and PLAIN in asks.mechanisms and not listener.speaks_tls:
            yield (
                f"clients of the listener {listener.name} may send their passwords in plain text: take PLAIN out of "
                "sasl.enabled.mechanisms, or give the listener the security protocol SASL_SSL"
            )
        if asks is not None and asks.tokens is not None:
            if not listener.speaks_tls:
                yield (
                    f"clients of the listener {listener.name} send their tokens in plain text, and whoever reads one "
                    "is that user until it ends: give the listener the security protocol SASL_SSL"
                )
            if not asks.tokens.rules.audiences:
                yield (
                    f"the listener {listener.name} takes tokens that were issued for any service: set "
                    "sasl.oauthbearer.expected.audience"
                )
        if settings.authorizer_class_name and not _asks_everybody(settings, listener):
            yield (
                f"rules of access are on (authorizer.class.name), and the listener {listener.name} "
                f"({listener.protocol}) asks nobody: everybody who reaches it is User:ANONYMOUS. Give it the security "
                "protocol SASL_SSL, or SSL with ssl.client.auth=required, or let only this machine reach it"
            )


def _asks_everybody(settings: BrokerSettings, listener: Listener) -> bool:
    """True if a peer of the listener has to say who it is."""
    if listener.speaks_sasl:
        return True
    return listener.speaks_tls and settings.tls_listeners[listener.name].client_auth == REQUIRED

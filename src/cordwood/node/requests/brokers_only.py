"""Checks requests that only brokers may send: fetches of followers, markers, verifications, requests for sound batches,
reports of positions and traffic.

A client that passes for a broker could commit records that no follower has, or end transactions of others. A broker's
request carries the key of the broker's registration; with it the request is taken at every listener. Without it the
sender needs the right ClusterAction if there is an authorizer. If there is none, or it only runs dry, a broker of a
release without keys is believed at the listeners that brokers use, unless such a listener asks for a log-in: releases
without keys cannot log in.
"""

from __future__ import annotations

from typing import Any

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.listeners import Callers
from cordwood.node.requests.proven_brokers import is_proven, may_be_keyless
from cordwood.node.requests.request import Request
from cordwood.security.sessions import Principal


def is_broker(image: ClusterImage, request: Request[Any], broker_id: int | None = None) -> bool:
    """True if the request comes from the broker (None: from any broker)."""
    entrance, header = request.reply.session.entrance, request.header
    if entrance.callers is Callers.ITSELF:
        return True
    if is_proven(image, header):
        assert header.sender is not None
        return broker_id in (None, header.sender.broker_id)
    judge = request.judge
    if judge.enforces:
        return judge.may(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)
    return entrance.between_brokers and entrance.asks is None and may_be_keyless(image, broker_id)


def may_write_markers(image: ClusterImage, request: Request[Any]) -> bool:
    """True if the request may write markers. Without an authorizer operators may, too, where no clients come:
    `kafka-transactions abort`. Where the brokers' listener asks for a log-in, they come as the brokers' own user."""
    session = request.reply.session
    callers = session.entrance.callers
    if request.judge.enforces or callers not in (Callers.BROKERS, Callers.ALONE):
        return is_broker(image, request)
    if callers is Callers.ALONE or session.entrance.asks is None:
        return True
    return session.principal == brokers_user(image) or is_broker(image, request)


def brokers_user(image: ClusterImage) -> Principal | None:
    """The user as which this broker logs in at others; None: it does not."""
    log_in = image.static_settings.brokers_log_in
    return None if log_in is None else Principal("User", log_in.user.user)


def check_broker(image: ClusterImage, request: Request[Any], broker_id: int, broker_epoch: int) -> None:
    """Refuses a request that does not come from the broker that this broker knows under this id."""
    by_right = request.judge.enforces
    if by_right and not is_broker(image, request, broker_id):
        raise ProtocolError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Only brokers, or ClusterAction of the cluster.")
    if not by_right and not request.reply.session.entrance.between_brokers and request.header.sender is None:
        raise ProtocolError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Brokers ask at the listener of brokers.")
    registered = image.broker_epochs.get(broker_id)
    if registered != broker_epoch:
        raise ProtocolError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} asks in broker epoch {broker_epoch}, and is registered in {registered}.",
        )
    if not is_broker(image, request, broker_id):
        raise ProtocolError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"The request does not carry the key of broker {broker_id}."
        )

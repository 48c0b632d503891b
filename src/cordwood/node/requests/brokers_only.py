"""Recognises requests of other brokers: fetches of followers, markers, verifications, requests for sound batches,
reports of positions and traffic.

A client that passes for a broker could commit records that no follower has, or end transactions of others. Broker
epochs count from 1, so they prove nothing. A request proves its sender by the key of the sender's registration, which
only brokers read in the metadata store; with it the request is taken at every listener. A broker of a release without
keys is believed as before, at the listeners that brokers use.
"""

from __future__ import annotations

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.settings.listeners import Callers, Entrance
from cordwood.wire.requests import RequestHeader


def is_proven(image: ClusterImage, header: RequestHeader) -> bool:
    """True if the request carries the key of the broker that it names as its sender."""
    sender = header.sender
    registered = None if sender is None else image.brokers.get(sender.broker_id)
    # The comparison takes the same time for every wrong key.
    return sender is not None and registered is not None and registered.key > 0 and not registered.key ^ sender.key


def may_be_keyless(image: ClusterImage, broker_id: int | None = None) -> bool:
    """True if the broker (None: any broker) is registered without a key."""
    if broker_id is None:
        return any(not broker.key for broker in image.brokers.values())
    registered = image.brokers.get(broker_id)
    return registered is not None and not registered.key


def is_broker(image: ClusterImage, header: RequestHeader, entrance: Entrance, broker_id: int | None = None) -> bool:
    """True if the request comes from the broker (None: from any broker)."""
    if entrance.callers is Callers.ITSELF:
        return True
    if is_proven(image, header):
        assert header.sender is not None
        return broker_id in (None, header.sender.broker_id)
    return entrance.between_brokers and may_be_keyless(image, broker_id)


def may_write_markers(image: ClusterImage, header: RequestHeader, entrance: Entrance) -> bool:
    """True if the request may write markers. Operators may, too, where no clients come: `kafka-transactions abort`."""
    return entrance.callers in (Callers.BROKERS, Callers.ALONE) or is_broker(image, header, entrance)


def check_broker(
    image: ClusterImage, header: RequestHeader, entrance: Entrance, broker_id: int, broker_epoch: int
) -> None:
    """Refuses a request that does not come from the broker that this broker knows under this id."""
    if not entrance.between_brokers and header.sender is None:
        raise ProtocolError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Brokers ask at the listener of brokers.")
    registered = image.broker_epochs.get(broker_id)
    if registered != broker_epoch:
        raise ProtocolError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} asks in broker epoch {broker_epoch}, and is registered in {registered}.",
        )
    if not is_broker(image, header, entrance, broker_id):
        raise ProtocolError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"The request does not carry the key of broker {broker_id}."
        )

"""Recognises brokers by the key of their registration, which only brokers read in the metadata store.

Broker epochs count from 1, so they prove nothing. A broker of a release without keys proves nothing either.
"""

from __future__ import annotations

from cordwood.cluster.metadata.image import ClusterImage
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

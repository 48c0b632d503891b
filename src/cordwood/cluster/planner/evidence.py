"""Direct evidence that a broker is dead, and the broker that revokes its lease: pure functions of the image.

Evidence is a refused connection at the address of a registration: no process listens there. A timeout is no evidence,
because a firewall looks the same. Two brokers have to see the refusal, or one if there is only one other broker: a
broker that is cut off from its own machine's network must not end the registrations of all others.

All brokers see a death in the same instant. If each of N brokers wrote it down, N keys would go to N watchers for each
death. So a few write at once, and groups of twice as many as before follow while there is not enough evidence.
"""

import zlib
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage

ENOUGH_OBSERVERS = 2
FIRST_OBSERVERS = 3
"""The number of brokers that write evidence at once."""


class Verdict(NamedTuple):
    """A registration that is over. `turn`: this broker's place among the observers, which revoke one by one."""

    broker_id: int
    broker_epoch: int
    turn: int


def suspected(image: ClusterImage, broker_id: int, broker_epoch: int) -> bool:
    """True if refused connections are evidence against this registration. A fenced broker does not listen yet."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.epoch == broker_epoch and not broker.fenced and broker_id != image.node_id


def observing_turn(image: ClusterImage, broker_id: int) -> int:
    """The group in which this broker writes evidence against another one: 0 writes at once.

    The order differs for each broker. Neighbours by id are often in one rack, and die together.
    """
    others = [other for other in image.brokers if other != broker_id]
    others.sort(key=lambda other: zlib.crc32(b"%d/%d" % (broker_id, other)))
    if image.node_id not in others:
        return 0
    return (others.index(image.node_id) // FIRST_OBSERVERS).bit_length()


def is_proven(image: ClusterImage, broker_id: int, broker_epoch: int) -> bool:
    """True if enough observers have written evidence against this registration."""
    return len(_observers(image, broker_id, broker_epoch)) >= _enough(image, broker_id)


def _observers(image: ClusterImage, broker_id: int, broker_epoch: int) -> list[int]:
    """The observers that are registered themselves, by id."""
    seen_by = image.evidence.get((broker_id, broker_epoch), ())
    return sorted(observer for observer in seen_by if observer in image.brokers and observer != broker_id)


def _enough(image: ClusterImage, broker_id: int) -> int:
    return min(ENOUGH_OBSERVERS, len(image.brokers.keys() - {broker_id}))


def verdicts(image: ClusterImage) -> list[Verdict]:
    """The registrations that this broker, as one of enough observers, has to end."""
    found = []
    for broker_id, broker_epoch in sorted(image.evidence):
        if not suspected(image, broker_id, broker_epoch):
            continue
        seen_by = _observers(image, broker_id, broker_epoch)
        if image.node_id in seen_by and len(seen_by) >= _enough(image, broker_id):
            found.append(Verdict(broker_id, broker_epoch, seen_by.index(image.node_id)))
    return found

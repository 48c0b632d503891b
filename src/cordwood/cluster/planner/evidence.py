"""Direct evidence that a broker is dead, and who revokes its lease: pure functions of the image.

Evidence is a refused connection at the address of a registration: no process listens there. A timeout is no evidence,
because a firewall looks the same. Two brokers have to see it, or one if there is only one other broker: a broker that
is cut off from its own machine's network must not end the registrations of all others.
"""

from typing import NamedTuple

from cordwood.cluster.image import ClusterImage

ENOUGH_OBSERVERS = 2


class Verdict(NamedTuple):
    """A registration that is over. `turn`: this broker's place among the observers, who revoke one after the other."""

    broker_id: int
    broker_epoch: int
    turn: int


def suspected(image: ClusterImage, broker_id: int, broker_epoch: int) -> bool:
    """Whether refused connections are evidence against this registration. A fenced broker does not listen yet."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.epoch == broker_epoch and not broker.fenced and broker_id != image.node_id


def verdicts(image: ClusterImage) -> list[Verdict]:
    """The registrations that this broker, as one of enough observers, has to end."""
    found = []
    for (broker_id, broker_epoch), observers in sorted(image.evidence.items()):
        if not suspected(image, broker_id, broker_epoch):
            continue
        others = [other for other in image.brokers if other != broker_id]
        seen_by = sorted(observer for observer in observers if observer in others)
        if image.node_id in seen_by and len(seen_by) >= min(ENOUGH_OBSERVERS, len(others)):
            found.append(Verdict(broker_id, broker_epoch, seen_by.index(image.node_id)))
    return found

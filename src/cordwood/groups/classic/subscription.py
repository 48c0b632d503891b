"""The only thing a broker reads of what consumers tell each other: the topics of a subscription.

Everything else in a member's metadata, and all of an assignment, is the clients' own business and stays bytes.
"""

import struct


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a ConsumerProtocolSubscription, or None if these bytes are something else."""
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        at, topics = 6, set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, at)
            at += 2
            if length < 0 or at + length > len(metadata):
                return None
            topics.add(metadata[at : at + length].decode())
            at += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def same_subscription(before: bytes, after: bytes) -> bool:
    """Whether two subscriptions name the same topics: sticky assignors put changing data of their own beside them."""
    if before == after:
        return True
    topics = subscribed_topics(before)
    return topics is not None and topics == subscribed_topics(after)

"""What a topic promises, in words: the scope of its order, and what an acknowledgement means.

Order always has a scope. Every sentence here names it.
"""

from typing import NamedTuple


class Promise(NamedTuple):
    """A promise by its name and as a sentence for people."""

    name: str
    meaning: str


def order_promise(scope: str | None, partitions: int) -> Promise:
    """The scope in which a topic's records are ordered. `scope` is its `ordering.scope`, None on other brokers."""
    if partitions == 1 and scope in ("global", None):
        return Promise(
            "global",
            "every record of the topic, in one order for every reader and every replay: it has one partition",
        )
    if scope == "key":
        return Promise(
            "key",
            f"records of one key are in order, because a key stays in one of the {_partitions(partitions)}; "
            "between keys there is no order. Partitions are not added without --force: keys would move",
        )
    if partitions == 1:
        return Promise(
            "partition",
            "every record of the topic, in one order, as long as it has one partition. "
            "Adding partitions narrows that to each partition; ordering.scope=global would forbid it",
        )
    return Promise(
        "partition",
        f"records of one partition are in order for every reader and every replay; between the {partitions} "
        "partitions there is no order. A key's records are ordered while their producer keeps them in one partition",
    )


def ack_promise(durability: str | None) -> Promise:
    """What an acknowledgement of acks=all means on a topic. `durability` is its `ack.durability`."""
    if durability == "disk":
        return Promise("disk", "acks=all: fsynced to disk by every in-sync replica before the producer hears of it")
    if durability == "os":
        return Promise(
            "os",
            "acks=all: in the page cache of every in-sync replica; a power cut of all of them can take it back",
        )
    return Promise("unknown", "this broker does not say what an acknowledgement means (no ack.durability)")


def _partitions(count: int) -> str:
    return "one partition" if count == 1 else f"{count} partitions"

"""A topic's promises in words: the scope of its order, and the meaning of an acknowledgement.

Order always has a scope, and every sentence here names the scope.
"""

from typing import NamedTuple


class Promise(NamedTuple):
    """A promise: its name, and a sentence for people."""

    name: str
    meaning: str


def order_promise(scope: str | None, partitions: int) -> Promise:
    """The scope in which a topic's records are ordered. `scope` is its `ordering.scope`, None on other brokers."""
    if partitions == 1 and scope in ("global", None):
        return Promise(
            "global",
            "all records of the topic are in one order, for every reader and every replay: the topic has one partition",
        )
    if scope == "key":
        return Promise(
            "key",
            f"records of one key are in order, because a key stays in one of the {_partitions(partitions)}; "
            "between keys there is no order. Adding partitions needs --force, because keys would move",
        )
    if partitions == 1:
        return Promise(
            "partition",
            "all records of the topic are in one order as long as it has one partition. With more partitions, only "
            "records of one partition are in order; ordering.scope=global forbids adding partitions",
        )
    return Promise(
        "partition",
        f"records of one partition are in order for every reader and every replay; between the {partitions} "
        "partitions there is no order. A key's records are ordered while their producer keeps them in one partition",
    )


def ack_promise(durability: str | None) -> Promise:
    """The meaning of an acknowledgement with acks=all on a topic. `durability` is the topic's `ack.durability`."""
    if durability == "disk":
        return Promise(
            "disk", "acks=all: every in-sync replica has fsynced the record before the producer gets the ack"
        )
    if durability == "os":
        return Promise(
            "os",
            "acks=all: the record is in the page cache of every in-sync replica; a power cut of all can lose it",
        )
    return Promise("unknown", "this broker does not say what an acknowledgement means (no ack.durability)")


def _partitions(count: int) -> str:
    return "one partition" if count == 1 else f"{count} partitions"

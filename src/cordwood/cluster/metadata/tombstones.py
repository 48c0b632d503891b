"""Tombstones of deleted topics: the brokers that may still have directories of a topic that is gone.

A broker deletes a directory only if its topic id has a tombstone. Each broker takes itself out of the tombstone when
its directories are gone, and the last one drops the tombstone. A broker that is away does so when it is back. A broker
that never comes back is taken out by an operator (`planner/forgetting.py`).
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from cordwood.cluster.metadata.topics import TopicImage


class Tombstone(NamedTuple):
    name: str
    brokers: tuple[int, ...]
    """The brokers that have not said yet that their directories are gone."""
    mod_revision: int = 0


def tombstone_of(topic: TopicImage) -> bytes:
    """The tombstone of a topic that is deleted now."""
    brokers = {broker for partition in topic.partitions for broker in partition.replicas}
    return encode_tombstone(topic.name, sorted(brokers))


def moved_tombstone(stone: Tombstone, brokers: Iterable[int]) -> bytes:
    """The tombstone after the directories of the topic moved to these brokers."""
    return encode_tombstone(stone.name, sorted(brokers))


def encode_tombstone(name: str, brokers: Iterable[int]) -> bytes:
    return json.dumps({"name": name, "brokers": list(brokers)}, separators=(",", ":")).encode()


def decode_tombstone(value: bytes, mod_revision: int) -> Tombstone:
    """Reads a tombstone. Raises ValueError, TypeError, AttributeError."""
    if not value.startswith(b"{"):
        # The first tombstones were names: there was one broker.
        return Tombstone(value.decode(), (), mod_revision)
    fields = json.loads(value)
    return Tombstone(str(fields.get("name")), tuple(map(int, fields.get("brokers"))), mod_revision)

"""Tombstones of deleted topics: the brokers that may still have directories of a topic that is gone.

A broker deletes a directory only if its topic id has a tombstone. Each broker takes itself out of the tombstone when
its directories are gone, and the last one drops the tombstone. A broker that is away does so when it is back. A broker
that never comes back is taken out by an operator (`planner/forgetting.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from cordwood.cluster.planner.transactions import StoreTxn
from cordwood.cluster.rows import deleted_topic_key
from cordwood.cluster.stores.interface import MAX_OPERATIONS, Compare, Delete, Operation, Put, has_mod_revision
from cordwood.model.identifiers import TopicId

if TYPE_CHECKING:
    from cordwood.cluster.image import ClusterImage, TopicImage


class Tombstone(NamedTuple):
    name: str
    brokers: tuple[int, ...]
    """The brokers that have not said yet that their directories are gone."""
    mod_revision: int = 0


def tombstone_of(topic: TopicImage) -> bytes:
    """The tombstone of a topic that is deleted now."""
    brokers = {broker for partition in topic.partitions for broker in partition.replicas}
    return _encode(topic.name, sorted(brokers))


def moved_tombstone(stone: Tombstone, brokers: Iterable[int]) -> bytes:
    """The tombstone after the directories of the topic moved to these brokers."""
    return _encode(stone.name, sorted(brokers))


def _encode(name: str, brokers: Iterable[int]) -> bytes:
    return json.dumps({"name": name, "brokers": list(brokers)}, separators=(",", ":")).encode()


def decode_tombstone(value: bytes, mod_revision: int) -> Tombstone:
    """Reads a tombstone. Raises ValueError, TypeError, AttributeError."""
    if not value.startswith(b"{"):
        # The first tombstones were names: there was one broker.
        return Tombstone(value.decode(), (), mod_revision)
    fields = json.loads(value)
    return Tombstone(str(fields.get("name")), tuple(map(int, fields.get("brokers"))), mod_revision)


def plan_directories_gone(
    image: ClusterImage, topic_ids: Iterable[TopicId], broker_id: int | None = None
) -> list[StoreTxn]:
    """Takes a broker (by default the image's own) out of tombstones: it has no directory of these topics left.

    A directory that comes back later, for example from a backup, is unknown: it is set aside, not deleted.
    """
    gone = image.node_id if broker_id is None else broker_id
    compares: list[Compare] = []
    operations: list[Operation] = []
    for topic_id in topic_ids:
        stone = image.deleted_topics.get(topic_id)
        if stone is None or (stone.brokers and gone not in stone.brokers):
            continue
        key = deleted_topic_key(topic_id)
        others = [broker for broker in stone.brokers if broker != gone]
        compares.append(has_mod_revision(key, stone.mod_revision))
        operations.append(Put(key, _encode(stone.name, others)) if others else Delete(key))
    at_once = MAX_OPERATIONS - 2
    return [
        StoreTxn(tuple(compares[start : start + at_once]), tuple(operations[start : start + at_once]))
        for start in range(0, len(operations), at_once)
    ]

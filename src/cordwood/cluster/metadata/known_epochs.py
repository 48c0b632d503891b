"""Counters of the metadata that only rise, as a broker knows them. By them a broker notices a store that went back and
does not know it.

A store that has compacted its history does not know whether it ever made a change (`newest.py`): it compacted since, or
it was restored from an older copy under a higher revision (`etcdutl snapshot restore --bump-revision --mark-compacted`
makes such copies). Each write of a partition raises its epoch by one, and each registration of a broker raises the
broker's epoch: a store with a lower epoch than a broker knows is an older copy.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import BROKER_EPOCHS, PARTITIONS, TOPIC_NAMES, decode_partition
from cordwood.cluster.metadata.topics import TopicImage
from cordwood.cluster.stores.interface import KeyValue
from cordwood.model.identifiers import TopicId


class KnownEpochs(NamedTuple):
    """The epochs of brokers, and the epochs of partitions in the order of their numbers."""

    brokers: Mapping[int, int]
    topics: Mapping[TopicId, TopicImage | Sequence[int]]
    """The partitions' epochs, or the topic that has them: an image is immutable, and a thread can read it later."""

    def partition_epochs(self) -> Iterable[tuple[TopicId, Sequence[int]]]:
        for topic_id, known in self.topics.items():
            if isinstance(known, TopicImage):
                yield topic_id, [partition.partition_epoch for partition in known.partitions]
            else:
                yield topic_id, known


def known_epochs(image: ClusterImage) -> KnownEpochs:
    """The epochs in the image. Costs a copy of two tables."""
    return KnownEpochs(dict(image.broker_epochs), dict(image.topics_by_id))


def encode_known_epochs(known: KnownEpochs) -> bytes:
    fields = {
        "brokers": {str(broker): epoch for broker, epoch in known.brokers.items()},
        "partitions": {str(topic_id): list(epochs) for topic_id, epochs in known.partition_epochs()},
    }
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def decode_known_epochs(value: bytes) -> KnownEpochs:
    """Reads known epochs. Raises ValueError, KeyError, TypeError, AttributeError."""
    fields = json.loads(value)
    return KnownEpochs(
        {int(broker): int(epoch) for broker, epoch in fields["brokers"].items()},
        {TopicId(text): [int(epoch) for epoch in epochs] for text, epochs in fields["partitions"].items()},
    )


def behind(known: KnownEpochs, items: Iterable[KeyValue]) -> str | None:
    """A text about the parts of a listing of the whole store that are in an earlier state than is known; None: there
    are none.

    A topic that the store does not name may have been deleted, and proves nothing.
    """
    brokers: dict[int, int] = {}
    names: dict[str, str] = {}
    rows: dict[str, bytes] = {}
    for item in items:
        if item.key.startswith(PARTITIONS):
            rows[item.key] = item.value
        elif item.key.startswith(TOPIC_NAMES):
            names[item.value.decode()] = item.key.removeprefix(TOPIC_NAMES)
        elif item.key.startswith(BROKER_EPOCHS):
            brokers[int(item.key.removeprefix(BROKER_EPOCHS))] = int(item.value)
    for broker, epoch in sorted(known.brokers.items()):
        if brokers.get(broker, 0) < epoch:
            return f"broker {broker} is in epoch {brokers.get(broker, 0)}, and was in epoch {epoch}"
    for topic_id, epochs in known.partition_epochs():
        name = names.get(str(topic_id))
        for number, epoch in enumerate(epochs if name is not None else ()):
            row = rows.get(f"{PARTITIONS}{topic_id}/{number}")
            if row is None:
                return f"partition {number} of {name} is unknown, and was known"
            if (stored := decode_partition(row).partition_epoch) < epoch:
                return f"the metadata of {name}-{number} is at change {stored}, and was at change {epoch}"
    return None

"""Topics in Metadata answers: the leader of each partition, for a client that reaches some of the brokers.

Encoded entries are kept until their topic or the brokers change.
"""

from collections.abc import Callable

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.model.errors import ErrorCode
from cordwood.wire.metadata import PartitionMetadata, TopicMetadata, encode_topic, layout_of

NO_LEADER = -1
LISTENER_NOT_FOUND_FROM = 6
"""From this version of Metadata on clients know LISTENER_NOT_FOUND."""

_Layout = tuple[int, int, ErrorCode, frozenset[int], frozenset[int], bool]


class EncodedTopics:
    """Entries of Metadata responses, kept until their topic changes, or a broker comes, goes or registers anew:
    encoding 10,000 partitions takes a while."""

    def __init__(self, image: ClusterImage, suspects: Callable[[], frozenset[int]]) -> None:
        """`suspects` returns the leaders that may be dead. A client that is told a dead leader asks again only seconds
        later; a client that is told of no leader asks again at once."""
        self._image = image
        self._suspects = suspects
        self._kept: dict[str, tuple[TopicImage, tuple[int, int], dict[_Layout, bytes]]] = {}

    def entry(
        self,
        topic: TopicImage,
        version: int,
        operations: int,
        unreachable: frozenset[int],
        *,
        on_librdkafka: bool,
        leaderless: frozenset[int] = frozenset(),
    ) -> bytes:
        """The entry for a client that cannot reach these brokers, and is told no leader of these partitions."""
        kept, brokers = self._kept.get(topic.name), (self._image.epochs_revision, self._image.brokers_revision)
        if kept is None or kept[0] is not topic or kept[1] != brokers:
            kept = self._kept[topic.name] = (topic, brokers, {})
        why = ErrorCode.LEADER_NOT_AVAILABLE
        if unreachable and version >= LISTENER_NOT_FOUND_FROM:
            why = ErrorCode.LISTENER_NOT_FOUND
        suspected = self._suspects()
        key = (layout_of(version), operations, why, unreachable, suspected, on_librdkafka)
        if leaderless:
            described = _describe(self._image, topic, operations, why, unreachable, suspected, on_librdkafka)
            return encode_topic(version, _without_leaders(described, leaderless))
        encoded = kept[2].get(key)
        if encoded is None:
            described = _describe(self._image, topic, operations, why, unreachable, suspected, on_librdkafka)
            encoded = kept[2][key] = encode_topic(version, described)
        return encoded

    def forget(self, name: str) -> None:
        self._kept.pop(name, None)


def _describe(
    image: ClusterImage,
    topic: TopicImage,
    operations: int,
    why: ErrorCode,
    unreachable: frozenset[int],
    suspected: frozenset[int],
    on_librdkafka: bool,
) -> TopicMetadata:
    led = []
    for partition in topic.partitions:
        told = leader_told(image, partition, why, unreachable, suspected)
        if on_librdkafka and told[2] is ErrorCode.LEADER_NOT_AVAILABLE:
            told = _successor(image, partition, unreachable | suspected) or told
        led.append((partition, told))
    partitions = [
        PartitionMetadata(
            index,
            leader,
            leader_epoch,
            partition.replicas,
            partition.isr,
            offline_replicas(image, partition),
            error_code=error,
        )
        for index, (partition, (leader, leader_epoch, error)) in enumerate(led)
    ]
    return TopicMetadata(topic.name, topic.topic_id, partitions, topic.internal, 0, operations)


def _without_leaders(topic: TopicMetadata, indexes: frozenset[int]) -> TopicMetadata:
    error = ErrorCode.LEADER_NOT_AVAILABLE
    partitions = [
        each._replace(leader_id=NO_LEADER, error_code=error) if each.partition in indexes else each
        for each in topic.partitions
    ]
    return topic._replace(partitions=partitions)


def leader_told(
    image: ClusterImage,
    partition: PartitionImage,
    why: ErrorCode,
    unreachable: frozenset[int],
    suspected: frozenset[int] = frozenset(),
) -> tuple[int, int, ErrorCode]:
    """The leader that a client is told, its epoch, and the error of a partition without one; `why` if the client cannot
    reach the leader. A leader that may be dead, or that clients are not told, does not count."""
    leader, epoch = image.leadership(partition)
    if leader in unreachable:
        return NO_LEADER, epoch, why
    if leader in suspected or not is_there(image, leader):
        return NO_LEADER, epoch, ErrorCode.LEADER_NOT_AVAILABLE
    return leader, epoch, ErrorCode.NONE


def _successor(
    image: ClusterImage, partition: PartitionImage, hidden: frozenset[int]
) -> tuple[int, int, ErrorCode] | None:
    """The broker that will probably lead a partition whose leader is away, for clients on librdkafka; None: there is
    none.

    A consumer on librdkafka that asks for the ends of a partition and is told of no leader answers its application
    _UNKNOWN_PARTITION from then on, and does not ask again for minutes. A broker that does not lead yet refuses the
    client, which asks for the leader at once.
    """
    leader, epoch = image.leadership(partition)
    for broker_id in partition.replicas:
        if (
            broker_id in partition.isr
            and broker_id != leader
            and broker_id not in hidden
            and is_there(image, broker_id)
        ):
            return broker_id, epoch, ErrorCode.NONE
    return None


def is_there(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


def offline_replicas(image: ClusterImage, partition: PartitionImage) -> tuple[int, ...]:
    """The replicas whose brokers are away."""
    return tuple(broker_id for broker_id in partition.replicas if not is_there(image, broker_id))

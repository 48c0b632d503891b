"""The cluster as clients see it: ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.cluster.metadata_writer import CreatedTopic
from cordwood.cluster.planner.topics import NewTopic
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import NEVER_AUTO_CREATED, ZERO_TOPIC_ID, TopicId, check_topic_name
from cordwood.model.operations import Operation, ResourceKind, as_bits
from cordwood.node.handlers.administration.features import (
    finalized_features,
    finalized_features_epoch,
    supported_features,
)
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.encoded_topics import EncodedTopics, leader_told, offline_replicas
from cordwood.node.requests.request import Made, Request, serves
from cordwood.node.requests.told_brokers import reached_by
from cordwood.security.trail.port import Changed
from cordwood.wire.api_versions import decode_api_versions, encode_api_versions_response
from cordwood.wire.apis import ApiKey
from cordwood.wire.metadata import (
    NULL_NAMES_FROM,
    OPERATIONS_NOT_ASKED_FOR,
    MetadataRequest,
    RequestedTopic,
    TopicMetadata,
    decode_metadata,
    encode_metadata_response,
    encode_topic,
)

if TYPE_CHECKING:
    from cordwood.node.coordinators.held_heartbeats import HeldHeartbeats
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.full_disk import FullDisk
    from cordwood.node.requests.access import Judge
    from cordwood.node.requests.astray_producers import AstrayProducers
    from cordwood.node.requests.librdkafka_clients import LibrdkafkaClients
    from cordwood.node.requests.told_brokers import ToldBrokers
    from cordwood.wire.apis import Api
    from cordwood.wire.endpoints import NodeEndpoint
    from cordwood.wire.message_types.describe_cluster import DescribeCluster
    from cordwood.wire.message_types.describe_topic_partitions import DescribeTopicPartitions
    from cordwood.wire.message_types.metadata import Metadata


BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2

NARROW_BYTES = 16 * 1024
"""Requests of at most this many bytes are decoded in one go."""
NARROW_TOPICS = 10
"""The most topics that are answered in one go: nearly always their encoded entries are kept."""
ENCODED_PER_STEP = 250
"""Topics and partitions in one step: an entry that is not kept yet takes some microseconds for each."""


class MetadataRooms(Protocol):
    """The rooms of a node that these handlers need."""

    astray_producers: AstrayProducers
    encoded_topics: EncodedTopics
    held_heartbeats: HeldHeartbeats
    image: ClusterImage
    librdkafka_clients: LibrdkafkaClients
    loop: Loop
    reports: Reports
    served_apis: tuple[Api, ...]
    told_brokers: ToldBrokers
    full_disk: FullDisk


def api_versions(rooms: MetadataRooms, request: Request) -> None:
    body = decode_api_versions(request.header, request.frame)
    version = request.version
    error = body.error_code(version, rooms.image.cluster_id, rooms.image.node_id)
    rooms.held_heartbeats.introduced(request.reply.connection_id, body.client_software_name)
    rooms.librdkafka_clients.introduced(request.reply.connection_id, body.client_software_name)
    request.send(
        encode_api_versions_response(
            version,
            request.header.correlation_id,
            rooms.served_apis,
            supported_features=supported_features(rooms.image),
            finalized_features=finalized_features(rooms.image),
            finalized_features_epoch=finalized_features_epoch(rooms.image),
            error_code=error,
        )
    )


def metadata(rooms: MetadataRooms, request: Request[Metadata]) -> Steps | None:
    if len(request.frame) > NARROW_BYTES:
        return _metadata_in_steps(rooms, request)
    return _metadata(rooms, request, decode_metadata(request.header, request.frame))


def _metadata_in_steps(rooms: MetadataRooms, request: Request[Metadata]) -> Steps:
    """Handles a Metadata request that names many topics, or has long names."""
    read = yield from request.read()
    topics = None if read.topics is None else [RequestedTopic(each.name, each.topic_id) for each in read.topics]
    yield
    body = MetadataRequest(
        topics,
        read.allow_auto_topic_creation,
        read.include_cluster_authorized_operations,
        read.include_topic_authorized_operations,
    )
    steps = _metadata(rooms, request, body)
    if steps is not None:
        yield from steps


def _metadata(rooms: MetadataRooms, request: Request, body: MetadataRequest) -> Steps | None:
    if body.topics is not None:
        # A topic that is asked for more than once is answered once, whatever name comes with its id: an entry may have
        # hundreds of kilobytes.
        asked: dict[object, RequestedTopic] = {}
        for each in body.topics:
            asked.setdefault(each.topic_id or each.name, each)
        body = body._replace(topics=list(asked.values()))
    missing = [] if body.topics is None else _creatable(rooms, body)
    errors: dict[str, ProtocolError] = {}
    judge = request.judge
    if judge.asks:
        missing = [name for name in missing if judge.may(Operation.DESCRIBE, ResourceKind.TOPIC, name)]
        refusals = {name: judge.refusal(Operation.CREATE, ResourceKind.TOPIC, name) for name in missing}
        errors = {name: refusal for name, refusal in refusals.items() if refusal is not None}
        missing = [name for name in missing if name not in errors]
    if not missing:
        return _answer_metadata(rooms, request, body, errors)

    def created(results: dict[str, CreatedTopic | ProtocolError] | Exception) -> None:
        if isinstance(results, Exception):
            rooms.reports.failure(results)
        else:
            errors.update({name: error for name, error in results.items() if isinstance(error, ProtocolError)})
            for name in results.keys() - errors.keys():
                told = "by a request for its metadata"
                request.changed(Changed(Operation.CREATE, ResourceKind.TOPIC, name, 0, told))
        steps = _answer_metadata(rooms, request, body, errors)
        if steps is not None:
            rooms.loop.turns.begin(request.reply, steps)

    wanted = [NewTopic(name) for name in missing]
    rooms.loop.effects.metadata(lambda writer: writer.create_topics(wanted), created)
    return None


def _creatable(rooms: MetadataRooms, body: MetadataRequest) -> list[str]:
    """The requested topics that do not exist and that the request creates."""
    assert body.topics is not None
    if not (body.allow_auto_topic_creation and rooms.image.settings.auto_create_topics_enable):
        return []
    names: list[str] = []
    for asked in body.topics:
        name = asked.name
        if asked.topic_id is not None or name is None:
            continue
        if name in rooms.image.topics or name in NEVER_AUTO_CREATED:
            continue
        try:
            check_topic_name(name)
        except ProtocolError:
            continue
        names.append(name)
    return names


def _answer_metadata(
    rooms: MetadataRooms, request: Request, body: MetadataRequest, errors: dict[str, ProtocolError]
) -> Steps | None:
    asked = rooms.image.sorted_topics() if body.topics is None else body.topics
    if len(asked) > NARROW_TOPICS:
        return _answer_metadata_in_steps(rooms, request, body, asked, errors)
    entries = _entries(rooms, request, body, asked, errors, _unreachable(rooms.image, request))
    _send_metadata(rooms, request, body, entries)
    return None


def _answer_metadata_in_steps(
    rooms: MetadataRooms,
    request: Request,
    body: MetadataRequest,
    asked: Sequence[TopicImage | RequestedTopic],
    errors: dict[str, ProtocolError],
) -> Steps:
    yield  # decoding so many names was a step of its own
    topics: list[bytes] = []
    left = ENCODED_PER_STEP
    unreachable = _unreachable(rooms.image, request)
    for each in asked:
        topics += _entries(rooms, request, body, (each,), errors, unreachable)
        topic = each if isinstance(each, TopicImage) else _find(rooms, each)
        left -= 1 if topic is None else 1 + len(topic.partitions)
        if left <= 0:
            left = ENCODED_PER_STEP
            yield
    _send_metadata(rooms, request, body, topics)


def _entries(
    rooms: MetadataRooms,
    request: Request,
    body: MetadataRequest,
    asked: Sequence[TopicImage | RequestedTopic],
    errors: dict[str, ProtocolError],
    unreachable: frozenset[int],
) -> list[bytes]:
    """The encoded entries of the topics, or of the errors for topics that do not exist."""
    version, entry = request.version, rooms.encoded_topics.entry
    connection_id = request.reply.connection_id
    on_librdkafka = connection_id in rooms.librdkafka_clients
    judge, with_operations = request.judge, body.include_topic_authorized_operations
    operations = OPERATIONS_NOT_ASKED_FOR
    topics: list[bytes] = []
    for each in asked:
        topic = each if isinstance(each, TopicImage) else _find(rooms, each)
        if judge.asks and not _is_seen(judge, each, topic):
            refused = _not_seen(each)
            if refused is not None and (refused.name is not None or version >= NULL_NAMES_FROM):
                topics.append(encode_topic(version, refused))
        elif topic is not None:
            if with_operations:
                operations = judge.operations(ResourceKind.TOPIC, topic.name)
            astray = rooms.astray_producers.to_free(connection_id, topic) if on_librdkafka else frozenset[int]()
            topics.append(
                entry(topic, version, operations, unreachable, on_librdkafka=on_librdkafka, leaderless=astray)
            )
        elif isinstance(each, RequestedTopic) and (unknown := _unknown(each, version, errors)) is not None:
            topics.append(encode_topic(version, unknown))
    return topics


def _is_seen(judge: Judge, asked: TopicImage | RequestedTopic, topic: TopicImage | None) -> bool:
    """True if the principal may know whether there is such a topic."""
    if isinstance(asked, TopicImage):
        return judge.may_see_topic(asked.name)
    name = asked.name if asked.topic_id is None else None if topic is None else topic.name
    return name is None or judge.may(Operation.DESCRIBE, ResourceKind.TOPIC, name)


def _not_seen(asked: TopicImage | RequestedTopic) -> TopicMetadata | None:
    """The entry of a topic that the principal may not know of; None: the topic is left out."""
    if isinstance(asked, TopicImage):
        return None
    if asked.topic_id is not None:
        return TopicMetadata(None, asked.topic_id, (), error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    return TopicMetadata(asked.name, None, (), error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _send_metadata(rooms: MetadataRooms, request: Request, body: MetadataRequest, topics: list[bytes]) -> None:
    image, version = rooms.image, request.version
    request.send(
        encode_metadata_response(
            version,
            request.header.correlation_id,
            brokers=rooms.told_brokers.endpoints(request.reply.session.entrance.name, request.reply.connection_id),
            cluster_id=image.cluster_id,
            controller_id=image.controller_id,
            topics=topics,
            cluster_authorized_operations=_on_the_cluster(request.judge, body.include_cluster_authorized_operations),
        )
    )


def _find(rooms: MetadataRooms, asked: RequestedTopic) -> TopicImage | None:
    """Finds a topic by its id if the request has one: the Java client then sends an empty name along."""
    if asked.topic_id is not None:
        return rooms.image.topics_by_id.get(asked.topic_id)
    return None if asked.name is None else rooms.image.topics.get(asked.name)


def _unknown(asked: RequestedTopic, version: int, errors: dict[str, ProtocolError]) -> TopicMetadata | None:
    if asked.topic_id is not None or asked.name is None:
        if version < NULL_NAMES_FROM:
            return None
        return TopicMetadata(None, asked.topic_id, (), error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if asked.name in errors:
        code = errors[asked.name].code
    try:
        check_topic_name(asked.name)
    except ProtocolError as invalid:
        code = invalid.code
    return TopicMetadata(asked.name, None, (), error_code=code)


def _unreachable(image: ClusterImage, request: Request) -> frozenset[int]:
    """The registered brokers that do not have the listener that the request came in on."""
    listener = request.reply.session.entrance.name
    return frozenset([broker_id for broker_id, broker in image.brokers.items() if broker.endpoint(listener) is None])


def describe_cluster(rooms: MetadataRooms, request: Request[DescribeCluster]) -> None:
    body = request.decode()
    wanted, error = body.endpoint_type, ErrorCode.NONE
    if wanted != BROKER_ENDPOINTS:
        mismatched = wanted == CONTROLLER_ENDPOINTS
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if mismatched else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    taking_part = {broker_id: broker for broker_id, broker in rooms.image.brokers.items() if not broker.fenced}
    asked = rooms.image.members if body.include_fenced_brokers else taking_part
    brokers = reached_by(request.reply.session.entrance.name, asked) if error is ErrorCode.NONE else []
    request.answer(
        error_code=error,
        error_message=None if error is ErrorCode.NONE else "There are only broker endpoints here.",
        endpoint_type=wanted,
        cluster_id=rooms.image.cluster_id,
        controller_id=rooms.image.controller_id,
        brokers=[_described(rooms.image, request.judge, broker, rooms.full_disk) for broker in brokers],
        cluster_authorized_operations=_on_the_cluster(request.judge, body.include_cluster_authorized_operations),
    )


def _on_the_cluster(judge: Judge, asked: bool) -> int:
    """What the principal may do with the cluster. As with Apache Kafka, only those who may describe it are told."""
    if not asked:
        return OPERATIONS_NOT_ASKED_FOR
    operations = judge.operations(ResourceKind.CLUSTER)
    return operations if operations & as_bits([Operation.DESCRIBE]) else 0


def _described(image: ClusterImage, judge: Judge, broker: NodeEndpoint, own: FullDisk) -> DescribeCluster.AnswerBroker:
    """The part that a broker takes in the cluster. A broker that is away counts as fenced, as in Kafka. `own`: the disk
    of this broker: a lone broker does not register it."""
    broker_id, host, port, rack = broker
    registered = image.brokers.get(broker_id)
    return {
        "broker_id": broker_id,
        "host": host,
        "port": port,
        "rack": rack,
        "is_fenced": registered is None or registered.fenced,
        "is_draining": registered is not None and registered.draining,
        "is_starting": registered is not None and registered.starting,
        "is_disk_full": (registered is not None and registered.disk_full) or (broker_id == image.node_id and own.full),
        "is_cordoned": broker_id in image.cordoned_brokers(),
        "is_away": registered is None,
        "withheld": () if registered is None else list(_named(image, judge, registered.withheld)),
    }


def _named(image: ClusterImage, judge: Judge, partitions: Sequence[str]) -> Iterator[str]:
    """Partitions of a broker's row by the names of their topics, where the names are known."""
    for partition in partitions:
        topic_id, _, index = partition.rpartition("/")
        topic = image.topic_name(TopicId(topic_id)) if topic_id else None
        if topic is None:
            yield partition
        elif judge.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic):
            yield f"{topic}-{index}"


def describe_topic_partitions(rooms: MetadataRooms, request: Request[DescribeTopicPartitions]) -> Steps:
    """Describes topics page by page: a cursor says where the next page begins."""
    body = yield from request.read()
    judge = request.judge
    asked = sorted({topic.name for topic in body.topics})
    names = asked or [topic.name for topic in rooms.image.sorted_topics()]
    if judge.asks and not asked:
        names = [name for name in names if judge.may_see_topic(name)]
    cursor = body.cursor
    topics: list[DescribeTopicPartitions.AnswerTopic] = []
    most = rooms.image.settings.max_request_partition_size_limit
    if cursor is not None:
        if cursor.partition_index < 0 or (asked and cursor.topic_name not in asked):
            nothing: DescribeTopicPartitions.AnswerTopic
            nothing = {"error_code": ErrorCode.INVALID_REQUEST, "topic_id": ZERO_TOPIC_ID, "partitions": ()}
            request.answer(topics=Made(names[:most], lambda name: {**nothing, "name": name}), next_cursor=None)
            return
        names = [name for name in names if name >= cursor.topic_name]
    room = max(1, min(body.response_partition_limit, most))
    unreachable = _unreachable(rooms.image, request)
    next_cursor: DescribeTopicPartitions.AnswerNextCursor | None = None
    for name in names:
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if room == 0:
            next_cursor = {"topic_name": name, "partition_index": first}
            break
        refused = not judge.may(Operation.DESCRIBE, ResourceKind.TOPIC, name)
        topic = None if refused else rooms.image.topics.get(name)
        described = _described_topic(rooms.image, name, topic, first, room, unreachable)
        if refused:
            described["error_code"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        described["topic_authorized_operations"] = (
            OPERATIONS_NOT_ASKED_FOR if refused else judge.operations(ResourceKind.TOPIC, name)
        )
        topics.append(described)
        if not len(topics) % ENCODED_PER_STEP:
            yield
        count = 0 if topic is None else max(0, len(topic.partitions) - first)
        if count > room:
            next_cursor = {"topic_name": name, "partition_index": first + room}
            break
        room -= count
    request.answer(topics=topics, next_cursor=next_cursor)


def _described_topic(
    image: ClusterImage, name: str, topic: TopicImage | None, first: int, room: int, unreachable: frozenset[int]
) -> DescribeTopicPartitions.AnswerTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except ProtocolError as invalid:
        error = invalid.code
    partitions = () if topic is None else topic.partitions[first : first + room]

    def described(numbered: tuple[int, PartitionImage]) -> DescribeTopicPartitions.AnswerPartition:
        return _described_partition(image, *numbered, unreachable)

    return {
        "error_code": ErrorCode.NONE if topic is not None else error,
        "name": name,
        "topic_id": ZERO_TOPIC_ID if topic is None else topic.topic_id,
        "is_internal": topic is not None and topic.internal,
        "partitions": Made(list(enumerate(partitions, first)), described),
    }


def _described_partition(
    image: ClusterImage, index: int, partition: PartitionImage, unreachable: frozenset[int]
) -> DescribeTopicPartitions.AnswerPartition:
    leader, leader_epoch, error = leader_told(image, partition, ErrorCode.LISTENER_NOT_FOUND, unreachable)
    return {
        "error_code": error,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        # The Java client cannot take null here, although the schema allows it.
        "eligible_leader_replicas": partition.elr,
        # The last brokers that had every acknowledged record, and lost their storage: no broker is left to lead.
        "last_known_elr": [broker_id for broker_id, _ in partition.former_storage],
        "offline_replicas": offline_replicas(image, partition),
    }


HANDLERS = (
    serves(ApiKey.API_VERSIONS, 0, 5, api_versions),
    serves(ApiKey.METADATA, 0, 13, metadata),
    serves(ApiKey.DESCRIBE_CLUSTER, 0, 2, describe_cluster),
    serves(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, describe_topic_partitions),
)

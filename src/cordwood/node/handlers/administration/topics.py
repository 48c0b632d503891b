"""Creates and deletes topics: CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cordwood.cluster.config_descriptions import ConfigEntry, topic_entries
from cordwood.cluster.metadata_writer import CreatedTopic
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.topics import MorePartitions, NewTopic, PartitionAddition, TopicDeletion, TopicReference
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import ZERO_TOPIC_ID
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.outcomes import each_outcome, status
from cordwood.node.requests.request import Made, Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.wire.message_types.create_partitions import CreatePartitions
    from cordwood.wire.message_types.create_topics import CreateTopics
    from cordwood.wire.message_types.delete_topics import DeleteTopics


class TopicRooms(Protocol):
    """The rooms of a node that these handlers need."""

    image: ClusterImage
    loop: Loop
    reports: Reports


def create_topics(rooms: TopicRooms, request: Request[CreateTopics]) -> Steps:
    body = yield from request.read()
    asked = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            tuple(Assignment(a.partition_index, tuple(a.broker_ids)) for a in topic.assignments),
            {config.name: config.value for config in topic.configs},
        )
        for topic in body.topics
    ]

    def done(outcomes: dict[str, CreatedTopic | ProtocolError] | Exception) -> None:
        names = list(dict.fromkeys(topic.name for topic in asked))
        request.answer(
            topics=Made(each_outcome(rooms.reports, outcomes, names), partial(_created, _Described(rooms.image)))
        )

    rooms.loop.effects.metadata(lambda writer: writer.create_topics(asked, validate_only=body.validate_only), done)


class _Described:
    """The settings of created topics, described one topic after the other. Neighbours mostly have the same ones."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._overrides: Mapping[str, str] | None = None
        self._entries: list[ConfigEntry] = []

    def entries(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        if overrides != self._overrides:
            self._overrides, self._entries = overrides, topic_entries(self._image, overrides)
        return self._entries


def _created(described: _Described, topic: tuple[str, CreatedTopic | ProtocolError]) -> CreateTopics.AnswerTopic:
    name, outcome = topic
    if isinstance(outcome, ProtocolError):
        return {
            "name": name,
            "topic_id": ZERO_TOPIC_ID,
            "error_code": outcome.code,
            "error_message": outcome.message,
            "configs": (),
        }
    return {
        "name": name,
        "topic_id": outcome.topic_id,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "num_partitions": outcome.partition_count,
        "replication_factor": outcome.replication_factor,
        # The Java client wants an array here whenever the topic was created.
        "configs": Made(described.entries(outcome.overrides), _created_config),
    }


def _created_config(config: ConfigEntry) -> CreateTopics.AnswerConfig:
    return {
        "name": config.name,
        "value": config.told_value,
        "read_only": config.read_only,
        "config_source": config.source,
        "is_sensitive": config.is_sensitive,
    }


def delete_topics(rooms: TopicRooms, request: Request[DeleteTopics]) -> Steps:
    body = yield from request.read()
    if request.version >= 6:
        asked = [TopicReference(topic.name, topic.topic_id) for topic in body.topics]
    else:
        asked = [TopicReference(name) for name in body.topic_names]

    def deleted(outcomes: dict[TopicReference, TopicDeletion | ProtocolError] | Exception) -> None:
        request.answer(responses=Made(each_outcome(rooms.reports, outcomes, list(dict.fromkeys(asked))), _deleted))

    rooms.loop.effects.metadata(lambda writer: writer.delete_topics(asked), deleted)


def _deleted(topic: tuple[TopicReference, TopicDeletion | ProtocolError]) -> DeleteTopics.AnswerResponse:
    reference, outcome = topic
    known = None if isinstance(outcome, ProtocolError) else outcome
    return {
        "name": reference.name if known is None else known.name,
        "topic_id": (reference.topic_id or ZERO_TOPIC_ID) if known is None else known.topic_id,
        **status(outcome),
    }


def create_partitions(rooms: TopicRooms, request: Request[CreatePartitions]) -> Steps:
    body = yield from request.read()
    asked = [
        MorePartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else tuple(tuple(a.broker_ids) for a in topic.assignments),
        )
        for topic in body.topics
    ]

    def grown(outcomes: dict[str, PartitionAddition | ProtocolError] | Exception) -> None:
        names = list(dict.fromkeys(topic.name for topic in asked))
        request.answer(
            results=Made(
                each_outcome(rooms.reports, outcomes, names), lambda topic: {"name": topic[0], **status(topic[1])}
            )
        )

    rooms.loop.effects.metadata(lambda writer: writer.create_partitions(asked, validate_only=body.validate_only), grown)


HANDLERS = (
    serves(ApiKey.CREATE_TOPICS, 2, 7, create_topics),
    serves(ApiKey.DELETE_TOPICS, 1, 6, delete_topics),
    serves(ApiKey.CREATE_PARTITIONS, 0, 3, create_partitions),
)

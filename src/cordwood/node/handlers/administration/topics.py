"""Creates and deletes topics: CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cordwood.cluster.config_descriptions import ConfigEntry, topic_entries
from cordwood.cluster.metadata_writer import CreatedTopic
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.topics import MorePartitions, NewTopic, PartitionAddition, TopicDeletion, TopicReference
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import ZERO_TOPIC_ID
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.outcomes import Key, Outcome, each_outcome, status
from cordwood.node.requests.request import Made, Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.requests.access import Judge
    from cordwood.wire.message_types.create_partitions import CreatePartitions
    from cordwood.wire.message_types.create_topics import CreateTopics
    from cordwood.wire.message_types.delete_topics import DeleteTopics


SETTINGS_TOLD_FROM_VERSION = 5
"""From this version on the answer to CreateTopics has the settings of the topic."""


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

    names = list(dict.fromkeys(topic.name for topic in asked))
    judge = request.judge
    refused = _refused(judge, Operation.CREATE, names)
    allowed = [topic for topic in asked if topic.name not in refused]

    def done(outcomes: dict[str, CreatedTopic | ProtocolError] | Exception) -> None:
        found = _all_outcomes(rooms.reports, outcomes, names, refused)
        hidden: set[str] = set()
        if request.version >= SETTINGS_TOLD_FROM_VERSION:
            hidden.update(_refused(judge, Operation.DESCRIBE_CONFIGS, names))
        request.answer(topics=Made(found, partial(_created, _Described(rooms.image), hidden)))

    if not allowed:
        done({})
        return
    rooms.loop.effects.metadata(lambda writer: writer.create_topics(allowed, validate_only=body.validate_only), done)


def _refused(judge: Judge, operation: Operation, names: Iterable[str]) -> dict[str, ProtocolError]:
    """The topics with which the principal may not do this, with the answer for each."""
    if not judge.asks:
        return {}
    refusals = ((name, judge.refusal(operation, ResourceKind.TOPIC, name)) for name in names)
    return {name: refusal for name, refusal in refusals if refusal is not None}


def _all_outcomes(
    reports: Reports,
    outcomes: Mapping[Key, Outcome] | Exception,
    keys: list[Key],
    refused: Mapping[Key, ProtocolError],
) -> list[tuple[Key, Outcome | ProtocolError]]:
    """The outcome of each key: that of the metadata's writer, or the refusal."""
    found: dict[Key, Outcome | ProtocolError] = dict(
        each_outcome(reports, outcomes, [key for key in keys if key not in refused])
    )
    found |= refused
    return [(key, found[key]) for key in keys]


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


def _created(
    described: _Described, hidden: set[str], topic: tuple[str, CreatedTopic | ProtocolError]
) -> CreateTopics.AnswerTopic:
    """Describes a created topic. `hidden`: the topics whose settings are not told."""
    name, outcome = topic
    if isinstance(outcome, ProtocolError):
        return {
            "name": name,
            "topic_id": ZERO_TOPIC_ID,
            "error_code": outcome.code,
            "error_message": outcome.message,
            "configs": (),
        }
    if name in hidden:
        return {
            "name": name,
            "topic_id": outcome.topic_id,
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "topic_config_error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "num_partitions": -1,
            "replication_factor": -1,
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
    refused = _not_deletable(rooms.image, request.judge, asked) if request.judge.asks else {}
    allowed = [each for each in asked if each not in refused]

    def deleted(outcomes: dict[TopicReference, TopicDeletion | ProtocolError] | Exception) -> None:
        found = _all_outcomes(rooms.reports, outcomes, list(dict.fromkeys(asked)), refused)
        request.answer(responses=Made(found, _deleted))

    if not allowed:
        deleted({})
        return
    rooms.loop.effects.metadata(lambda writer: writer.delete_topics(allowed), deleted)


def _not_deletable(
    image: ClusterImage, judge: Judge, asked: list[TopicReference]
) -> dict[TopicReference, ProtocolError]:
    """The topics that the principal may not delete, with the answer for each."""
    refused: dict[TopicReference, ProtocolError] = {}
    for each in asked:
        refusal: ProtocolError | None = None
        if each.name is not None:
            refusal = judge.refusal(Operation.DESCRIBE, ResourceKind.TOPIC, each.name)
            if refusal is None and each.name in image.topics:
                refusal = judge.refusal(Operation.DELETE, ResourceKind.TOPIC, each.name)
        elif (name := image.topic_name(each.topic_id or ZERO_TOPIC_ID)) is not None:
            refusal = judge.topic_refusal(Operation.DELETE, name, each.topic_id)
        if refusal is not None:
            refused[each] = refusal
    return refused


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

    names = list(dict.fromkeys(topic.name for topic in asked))
    refused = _refused(request.judge, Operation.ALTER, names)
    allowed = [topic for topic in asked if topic.name not in refused]

    def grown(outcomes: dict[str, PartitionAddition | ProtocolError] | Exception) -> None:
        found = _all_outcomes(rooms.reports, outcomes, names, refused)
        request.answer(results=Made(found, lambda topic: {"name": topic[0], **status(topic[1])}))

    if not allowed:
        grown({})
        return
    rooms.loop.effects.metadata(
        lambda writer: writer.create_partitions(allowed, validate_only=body.validate_only), grown
    )


HANDLERS = (
    serves(ApiKey.CREATE_TOPICS, 2, 7, create_topics),
    serves(ApiKey.DELETE_TOPICS, 1, 6, delete_topics),
    serves(ApiKey.CREATE_PARTITIONS, 0, 3, create_partitions),
)

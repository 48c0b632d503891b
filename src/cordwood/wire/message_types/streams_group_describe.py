"""Generated from `messages/StreamsGroupDescribe.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class StreamsGroupDescribe(
    ApiTypes[
        "StreamsGroupDescribe.Request",
        "StreamsGroupDescribe.Answer",
        "StreamsGroupDescribe.Response",
    ]
):
    class Request(Entity):
        group_ids: Sequence[str]
        include_authorized_operations: bool
        include_topology_description: bool

    class ResponseTopicConfig(Entity):
        key: str
        value: str

    class ResponseStateChangelogTopic(Entity):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Sequence[StreamsGroupDescribe.ResponseTopicConfig]

    class ResponseRepartitionSourceTopic(Entity):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Sequence[StreamsGroupDescribe.ResponseTopicConfig]

    class ResponseSubtopology(Entity):
        subtopology_id: str
        source_topics: Sequence[str]
        repartition_sink_topics: Sequence[str]
        state_changelog_topics: Sequence[StreamsGroupDescribe.ResponseStateChangelogTopic]
        repartition_source_topics: Sequence[StreamsGroupDescribe.ResponseRepartitionSourceTopic]

    class ResponseTopology(Entity):
        epoch: int
        subtopologies: Sequence[StreamsGroupDescribe.ResponseSubtopology] | None

    class ResponseUserEndpoint(Entity):
        host: str
        port: int

    class ResponseClientTag(Entity):
        key: str
        value: str

    class ResponseTaskOffset(Entity):
        subtopology_id: str
        partition: int
        offset: int

    class ResponseTaskEndOffset(Entity):
        subtopology_id: str
        partition: int
        offset: int

    class ResponseActiveTask(Entity):
        subtopology_id: str
        partitions: Sequence[int]

    class ResponseStandbyTask(Entity):
        subtopology_id: str
        partitions: Sequence[int]

    class ResponseWarmupTask(Entity):
        subtopology_id: str
        partitions: Sequence[int]

    class ResponseAssignment(Entity):
        active_tasks: Sequence[StreamsGroupDescribe.ResponseActiveTask]
        standby_tasks: Sequence[StreamsGroupDescribe.ResponseStandbyTask]
        warmup_tasks: Sequence[StreamsGroupDescribe.ResponseWarmupTask]

    class ResponseTargetAssignment(Entity):
        active_tasks: Sequence[StreamsGroupDescribe.ResponseActiveTask]
        standby_tasks: Sequence[StreamsGroupDescribe.ResponseStandbyTask]
        warmup_tasks: Sequence[StreamsGroupDescribe.ResponseWarmupTask]

    class ResponseMember(Entity):
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        client_id: str
        client_host: str
        topology_epoch: int
        process_id: str
        user_endpoint: StreamsGroupDescribe.ResponseUserEndpoint | None
        client_tags: Sequence[StreamsGroupDescribe.ResponseClientTag]
        task_offsets: Sequence[StreamsGroupDescribe.ResponseTaskOffset]
        task_end_offsets: Sequence[StreamsGroupDescribe.ResponseTaskEndOffset]
        assignment: StreamsGroupDescribe.ResponseAssignment
        target_assignment: StreamsGroupDescribe.ResponseTargetAssignment
        is_classic: bool

    class ResponseNode(Entity):
        name: str
        node_type: int
        source_topics: Sequence[str]
        sink_topic: str | None
        stores: Sequence[str]
        successors: Sequence[str]

    class ResponseTopologyDescriptionSubtopology(Entity):
        subtopology_id: str
        nodes: Sequence[StreamsGroupDescribe.ResponseNode]

    class ResponseSource(Entity):
        name: str
        node_type: int
        source_topics: Sequence[str]
        sink_topic: str | None
        stores: Sequence[str]
        successors: Sequence[str]

    class ResponseProcessor(Entity):
        name: str
        node_type: int
        source_topics: Sequence[str]
        sink_topic: str | None
        stores: Sequence[str]
        successors: Sequence[str]

    class ResponseGlobalStore(Entity):
        source: StreamsGroupDescribe.ResponseSource
        processor: StreamsGroupDescribe.ResponseProcessor

    class ResponseTopologyDescription(Entity):
        subtopologies: Sequence[StreamsGroupDescribe.ResponseTopologyDescriptionSubtopology]
        global_stores: Sequence[StreamsGroupDescribe.ResponseGlobalStore]

    class ResponseGroup(Entity):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        topology: StreamsGroupDescribe.ResponseTopology | None
        members: Sequence[StreamsGroupDescribe.ResponseMember]
        authorized_operations: int
        topology_description: StreamsGroupDescribe.ResponseTopologyDescription | None
        topology_description_status: int
        assignor_name: str | None

    class Response(Entity):
        throttle_time_ms: int
        groups: Sequence[StreamsGroupDescribe.ResponseGroup]

    class AnswerTopicConfig(TypedDict, total=False):
        key: str
        value: str

    class AnswerStateChangelogTopic(TypedDict, total=False):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Array[StreamsGroupDescribe.AnswerTopicConfig]

    class AnswerRepartitionSourceTopic(TypedDict, total=False):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Array[StreamsGroupDescribe.AnswerTopicConfig]

    class AnswerSubtopology(TypedDict, total=False):
        subtopology_id: str
        source_topics: Array[str]
        repartition_sink_topics: Array[str]
        state_changelog_topics: Array[StreamsGroupDescribe.AnswerStateChangelogTopic]
        repartition_source_topics: Array[StreamsGroupDescribe.AnswerRepartitionSourceTopic]

    class AnswerTopology(TypedDict, total=False):
        epoch: int
        subtopologies: Array[StreamsGroupDescribe.AnswerSubtopology] | None

    class AnswerUserEndpoint(TypedDict, total=False):
        host: str
        port: int

    class AnswerClientTag(TypedDict, total=False):
        key: str
        value: str

    class AnswerTaskOffset(TypedDict, total=False):
        subtopology_id: str
        partition: int
        offset: int

    class AnswerTaskEndOffset(TypedDict, total=False):
        subtopology_id: str
        partition: int
        offset: int

    class AnswerActiveTask(TypedDict, total=False):
        subtopology_id: str
        partitions: Array[int]

    class AnswerStandbyTask(TypedDict, total=False):
        subtopology_id: str
        partitions: Array[int]

    class AnswerWarmupTask(TypedDict, total=False):
        subtopology_id: str
        partitions: Array[int]

    class AnswerAssignment(TypedDict, total=False):
        active_tasks: Array[StreamsGroupDescribe.AnswerActiveTask]
        standby_tasks: Array[StreamsGroupDescribe.AnswerStandbyTask]
        warmup_tasks: Array[StreamsGroupDescribe.AnswerWarmupTask]

    class AnswerTargetAssignment(TypedDict, total=False):
        active_tasks: Array[StreamsGroupDescribe.AnswerActiveTask]
        standby_tasks: Array[StreamsGroupDescribe.AnswerStandbyTask]
        warmup_tasks: Array[StreamsGroupDescribe.AnswerWarmupTask]

    class AnswerMember(TypedDict, total=False):
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        client_id: str
        client_host: str
        topology_epoch: int
        process_id: str
        user_endpoint: StreamsGroupDescribe.AnswerUserEndpoint | None
        client_tags: Array[StreamsGroupDescribe.AnswerClientTag]
        task_offsets: Array[StreamsGroupDescribe.AnswerTaskOffset]
        task_end_offsets: Array[StreamsGroupDescribe.AnswerTaskEndOffset]
        assignment: StreamsGroupDescribe.AnswerAssignment
        target_assignment: StreamsGroupDescribe.AnswerTargetAssignment
        is_classic: bool

    class AnswerNode(TypedDict, total=False):
        name: str
        node_type: int
        source_topics: Array[str]
        sink_topic: str | None
        stores: Array[str]
        successors: Array[str]

    class AnswerTopologyDescriptionSubtopology(TypedDict, total=False):
        subtopology_id: str
        nodes: Array[StreamsGroupDescribe.AnswerNode]

    class AnswerSource(TypedDict, total=False):
        name: str
        node_type: int
        source_topics: Array[str]
        sink_topic: str | None
        stores: Array[str]
        successors: Array[str]

    class AnswerProcessor(TypedDict, total=False):
        name: str
        node_type: int
        source_topics: Array[str]
        sink_topic: str | None
        stores: Array[str]
        successors: Array[str]

    class AnswerGlobalStore(TypedDict, total=False):
        source: StreamsGroupDescribe.AnswerSource
        processor: StreamsGroupDescribe.AnswerProcessor

    class AnswerTopologyDescription(TypedDict, total=False):
        subtopologies: Array[StreamsGroupDescribe.AnswerTopologyDescriptionSubtopology]
        global_stores: Array[StreamsGroupDescribe.AnswerGlobalStore]

    class AnswerGroup(TypedDict, total=False):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        topology: StreamsGroupDescribe.AnswerTopology | None
        members: Array[StreamsGroupDescribe.AnswerMember]
        authorized_operations: int
        topology_description: StreamsGroupDescribe.AnswerTopologyDescription | None
        topology_description_status: int
        assignor_name: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            groups: Array[StreamsGroupDescribe.AnswerGroup] = ...,
        ) -> None: ...

"""Generated from `messages/StreamsGroupHeartbeat.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class StreamsGroupHeartbeat(
    ApiTypes[
        "StreamsGroupHeartbeat.Request",
        "StreamsGroupHeartbeat.Answer",
        "StreamsGroupHeartbeat.Response",
    ]
):
    class RequestTopicConfig(Entity):
        key: str
        value: str

    class RequestStateChangelogTopic(Entity):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Sequence[StreamsGroupHeartbeat.RequestTopicConfig]

    class RequestRepartitionSourceTopic(Entity):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Sequence[StreamsGroupHeartbeat.RequestTopicConfig]

    class RequestCopartitionGroup(Entity):
        source_topics: Sequence[int]
        source_topic_regex: Sequence[int]
        repartition_source_topics: Sequence[int]

    class RequestSubtopology(Entity):
        subtopology_id: str
        source_topics: Sequence[str]
        source_topic_regex: Sequence[str]
        state_changelog_topics: Sequence[StreamsGroupHeartbeat.RequestStateChangelogTopic]
        repartition_sink_topics: Sequence[str]
        repartition_source_topics: Sequence[StreamsGroupHeartbeat.RequestRepartitionSourceTopic]
        copartition_groups: Sequence[StreamsGroupHeartbeat.RequestCopartitionGroup]

    class RequestTopology(Entity):
        epoch: int
        subtopologies: Sequence[StreamsGroupHeartbeat.RequestSubtopology]

    class RequestActiveTask(Entity):
        subtopology_id: str
        partitions: Sequence[int]

    class RequestStandbyTask(Entity):
        subtopology_id: str
        partitions: Sequence[int]

    class RequestWarmupTask(Entity):
        subtopology_id: str
        partitions: Sequence[int]

    class RequestUserEndpoint(Entity):
        host: str
        port: int

    class RequestClientTag(Entity):
        key: str
        value: str

    class RequestTaskOffset(Entity):
        subtopology_id: str
        partition: int
        offset: int

    class RequestTaskEndOffset(Entity):
        subtopology_id: str
        partition: int
        offset: int

    class Request(Entity):
        group_id: str
        member_id: str
        member_epoch: int
        endpoint_information_epoch: int
        instance_id: str | None
        rack_id: str | None
        rebalance_timeout_ms: int
        topology: StreamsGroupHeartbeat.RequestTopology | None
        active_tasks: Sequence[StreamsGroupHeartbeat.RequestActiveTask] | None
        standby_tasks: Sequence[StreamsGroupHeartbeat.RequestStandbyTask] | None
        warmup_tasks: Sequence[StreamsGroupHeartbeat.RequestWarmupTask] | None
        process_id: str | None
        user_endpoint: StreamsGroupHeartbeat.RequestUserEndpoint | None
        client_tags: Sequence[StreamsGroupHeartbeat.RequestClientTag] | None
        task_offsets: Sequence[StreamsGroupHeartbeat.RequestTaskOffset] | None
        task_end_offsets: Sequence[StreamsGroupHeartbeat.RequestTaskEndOffset] | None
        shutdown_application: bool

    class ResponseStatus(Entity):
        status_code: int
        status_detail: str

    class ResponseActiveTask(Entity):
        subtopology_id: str
        partitions: Sequence[int]

    class ResponseStandbyTask(Entity):
        subtopology_id: str
        partitions: Sequence[int]

    class ResponseWarmupTask(Entity):
        subtopology_id: str
        partitions: Sequence[int]

    class ResponseUserEndpoint(Entity):
        host: str
        port: int

    class ResponseActivePartition(Entity):
        topic: str
        partitions: Sequence[int]

    class ResponseStandbyPartition(Entity):
        topic: str
        partitions: Sequence[int]

    class ResponsePartitionsByUserEndpoint(Entity):
        user_endpoint: StreamsGroupHeartbeat.ResponseUserEndpoint
        active_partitions: Sequence[StreamsGroupHeartbeat.ResponseActivePartition]
        standby_partitions: Sequence[StreamsGroupHeartbeat.ResponseStandbyPartition]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        member_id: str
        member_epoch: int
        heartbeat_interval_ms: int
        acceptable_recovery_lag_legacy: int
        task_offset_interval_ms: int
        acceptable_recovery_lag: int
        status: Sequence[StreamsGroupHeartbeat.ResponseStatus] | None
        active_tasks: Sequence[StreamsGroupHeartbeat.ResponseActiveTask] | None
        standby_tasks: Sequence[StreamsGroupHeartbeat.ResponseStandbyTask] | None
        warmup_tasks: Sequence[StreamsGroupHeartbeat.ResponseWarmupTask] | None
        topology_description_required: bool
        endpoint_information_epoch: int
        partitions_by_user_endpoint: Sequence[StreamsGroupHeartbeat.ResponsePartitionsByUserEndpoint] | None

    class AnswerStatus(TypedDict, total=False):
        status_code: int
        status_detail: str

    class AnswerActiveTask(TypedDict, total=False):
        subtopology_id: str
        partitions: Array[int]

    class AnswerStandbyTask(TypedDict, total=False):
        subtopology_id: str
        partitions: Array[int]

    class AnswerWarmupTask(TypedDict, total=False):
        subtopology_id: str
        partitions: Array[int]

    class AnswerUserEndpoint(TypedDict, total=False):
        host: str
        port: int

    class AnswerActivePartition(TypedDict, total=False):
        topic: str
        partitions: Array[int]

    class AnswerStandbyPartition(TypedDict, total=False):
        topic: str
        partitions: Array[int]

    class AnswerPartitionsByUserEndpoint(TypedDict, total=False):
        user_endpoint: StreamsGroupHeartbeat.AnswerUserEndpoint
        active_partitions: Array[StreamsGroupHeartbeat.AnswerActivePartition]
        standby_partitions: Array[StreamsGroupHeartbeat.AnswerStandbyPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            member_id: str = ...,
            member_epoch: int = ...,
            heartbeat_interval_ms: int = ...,
            acceptable_recovery_lag_legacy: int = ...,
            task_offset_interval_ms: int = ...,
            acceptable_recovery_lag: int = ...,
            status: Array[StreamsGroupHeartbeat.AnswerStatus] | None = ...,
            active_tasks: Array[StreamsGroupHeartbeat.AnswerActiveTask] | None = ...,
            standby_tasks: Array[StreamsGroupHeartbeat.AnswerStandbyTask] | None = ...,
            warmup_tasks: Array[StreamsGroupHeartbeat.AnswerWarmupTask] | None = ...,
            topology_description_required: bool = ...,
            endpoint_information_epoch: int = ...,
            partitions_by_user_endpoint: Array[StreamsGroupHeartbeat.AnswerPartitionsByUserEndpoint] | None = ...,
        ) -> None: ...

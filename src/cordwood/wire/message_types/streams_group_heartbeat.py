"""Generated from `messages/StreamsGroupHeartbeat.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class StreamsGroupHeartbeatRequestTopicConfig(Entity):
    key: str
    value: str


class StreamsGroupHeartbeatRequestStateChangelogTopic(Entity):
    name: str
    partitions: int
    replication_factor: int
    topic_configs: Sequence[StreamsGroupHeartbeatRequestTopicConfig]


class StreamsGroupHeartbeatRequestRepartitionSourceTopic(Entity):
    name: str
    partitions: int
    replication_factor: int
    topic_configs: Sequence[StreamsGroupHeartbeatRequestTopicConfig]


class StreamsGroupHeartbeatRequestCopartitionGroup(Entity):
    source_topics: Sequence[int]
    source_topic_regex: Sequence[int]
    repartition_source_topics: Sequence[int]


class StreamsGroupHeartbeatRequestSubtopology(Entity):
    subtopology_id: str
    source_topics: Sequence[str]
    source_topic_regex: Sequence[str]
    state_changelog_topics: Sequence[StreamsGroupHeartbeatRequestStateChangelogTopic]
    repartition_sink_topics: Sequence[str]
    repartition_source_topics: Sequence[StreamsGroupHeartbeatRequestRepartitionSourceTopic]
    copartition_groups: Sequence[StreamsGroupHeartbeatRequestCopartitionGroup]


class StreamsGroupHeartbeatRequestTopology(Entity):
    epoch: int
    subtopologies: Sequence[StreamsGroupHeartbeatRequestSubtopology]


class StreamsGroupHeartbeatRequestActiveTask(Entity):
    subtopology_id: str
    partitions: Sequence[int]


class StreamsGroupHeartbeatRequestStandbyTask(Entity):
    subtopology_id: str
    partitions: Sequence[int]


class StreamsGroupHeartbeatRequestWarmupTask(Entity):
    subtopology_id: str
    partitions: Sequence[int]


class StreamsGroupHeartbeatRequestUserEndpoint(Entity):
    host: str
    port: int


class StreamsGroupHeartbeatRequestClientTag(Entity):
    key: str
    value: str


class StreamsGroupHeartbeatRequestTaskOffset(Entity):
    subtopology_id: str
    partition: int
    offset: int


class StreamsGroupHeartbeatRequestTaskEndOffset(Entity):
    subtopology_id: str
    partition: int
    offset: int


class StreamsGroupHeartbeatRequest(Entity):
    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topology: StreamsGroupHeartbeatRequestTopology | None
    active_tasks: Sequence[StreamsGroupHeartbeatRequestActiveTask] | None
    standby_tasks: Sequence[StreamsGroupHeartbeatRequestStandbyTask] | None
    warmup_tasks: Sequence[StreamsGroupHeartbeatRequestWarmupTask] | None
    process_id: str | None
    user_endpoint: StreamsGroupHeartbeatRequestUserEndpoint | None
    client_tags: Sequence[StreamsGroupHeartbeatRequestClientTag] | None
    task_offsets: Sequence[StreamsGroupHeartbeatRequestTaskOffset] | None
    task_end_offsets: Sequence[StreamsGroupHeartbeatRequestTaskEndOffset] | None
    shutdown_application: bool


class StreamsGroupHeartbeatResponseStatus(Entity):
    status_code: int
    status_detail: str


class StreamsGroupHeartbeatResponseActiveTask(Entity):
    subtopology_id: str
    partitions: Sequence[int]


class StreamsGroupHeartbeatResponseStandbyTask(Entity):
    subtopology_id: str
    partitions: Sequence[int]


class StreamsGroupHeartbeatResponseWarmupTask(Entity):
    subtopology_id: str
    partitions: Sequence[int]


class StreamsGroupHeartbeatResponseUserEndpoint(Entity):
    host: str
    port: int


class StreamsGroupHeartbeatResponseActivePartition(Entity):
    topic: str
    partitions: Sequence[int]


class StreamsGroupHeartbeatResponseStandbyPartition(Entity):
    topic: str
    partitions: Sequence[int]


class StreamsGroupHeartbeatResponsePartitionsByUserEndpoint(Entity):
    user_endpoint: StreamsGroupHeartbeatResponseUserEndpoint
    active_partitions: Sequence[StreamsGroupHeartbeatResponseActivePartition]
    standby_partitions: Sequence[StreamsGroupHeartbeatResponseStandbyPartition]


class StreamsGroupHeartbeatResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    acceptable_recovery_lag_legacy: int
    task_offset_interval_ms: int
    acceptable_recovery_lag: int
    status: Sequence[StreamsGroupHeartbeatResponseStatus] | None
    active_tasks: Sequence[StreamsGroupHeartbeatResponseActiveTask] | None
    standby_tasks: Sequence[StreamsGroupHeartbeatResponseStandbyTask] | None
    warmup_tasks: Sequence[StreamsGroupHeartbeatResponseWarmupTask] | None
    topology_description_required: bool
    endpoint_information_epoch: int
    partitions_by_user_endpoint: Sequence[StreamsGroupHeartbeatResponsePartitionsByUserEndpoint] | None


class StreamsGroupHeartbeatAnswerStatus(TypedDict, total=False):
    status_code: int
    status_detail: str


class StreamsGroupHeartbeatAnswerActiveTask(TypedDict, total=False):
    subtopology_id: str
    partitions: Array[int]


class StreamsGroupHeartbeatAnswerStandbyTask(TypedDict, total=False):
    subtopology_id: str
    partitions: Array[int]


class StreamsGroupHeartbeatAnswerWarmupTask(TypedDict, total=False):
    subtopology_id: str
    partitions: Array[int]


class StreamsGroupHeartbeatAnswerUserEndpoint(TypedDict, total=False):
    host: str
    port: int


class StreamsGroupHeartbeatAnswerActivePartition(TypedDict, total=False):
    topic: str
    partitions: Array[int]


class StreamsGroupHeartbeatAnswerStandbyPartition(TypedDict, total=False):
    topic: str
    partitions: Array[int]


class StreamsGroupHeartbeatAnswerPartitionsByUserEndpoint(TypedDict, total=False):
    user_endpoint: StreamsGroupHeartbeatAnswerUserEndpoint
    active_partitions: Array[StreamsGroupHeartbeatAnswerActivePartition]
    standby_partitions: Array[StreamsGroupHeartbeatAnswerStandbyPartition]


class StreamsGroupHeartbeatAnswer(Protocol):
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
        status: Array[StreamsGroupHeartbeatAnswerStatus] | None = ...,
        active_tasks: Array[StreamsGroupHeartbeatAnswerActiveTask] | None = ...,
        standby_tasks: Array[StreamsGroupHeartbeatAnswerStandbyTask] | None = ...,
        warmup_tasks: Array[StreamsGroupHeartbeatAnswerWarmupTask] | None = ...,
        topology_description_required: bool = ...,
        endpoint_information_epoch: int = ...,
        partitions_by_user_endpoint: Array[StreamsGroupHeartbeatAnswerPartitionsByUserEndpoint] | None = ...,
    ) -> None: ...


class StreamsGroupHeartbeat(
    ApiTypes[
        StreamsGroupHeartbeatRequest,
        StreamsGroupHeartbeatAnswer,
        StreamsGroupHeartbeatResponse,
    ]
):
    pass

"""Generated from `messages/StreamsGroupDescribe.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class StreamsGroupDescribeRequest(Entity):
    group_ids: Sequence[str]
    include_authorized_operations: bool
    include_topology_description: bool


class StreamsGroupDescribeResponseTopicConfig(Entity):
    key: str
    value: str


class StreamsGroupDescribeResponseStateChangelogTopic(Entity):
    name: str
    partitions: int
    replication_factor: int
    topic_configs: Sequence[StreamsGroupDescribeResponseTopicConfig]


class StreamsGroupDescribeResponseRepartitionSourceTopic(Entity):
    name: str
    partitions: int
    replication_factor: int
    topic_configs: Sequence[StreamsGroupDescribeResponseTopicConfig]


class StreamsGroupDescribeResponseSubtopology(Entity):
    subtopology_id: str
    source_topics: Sequence[str]
    repartition_sink_topics: Sequence[str]
    state_changelog_topics: Sequence[StreamsGroupDescribeResponseStateChangelogTopic]
    repartition_source_topics: Sequence[StreamsGroupDescribeResponseRepartitionSourceTopic]


class StreamsGroupDescribeResponseTopology(Entity):
    epoch: int
    subtopologies: Sequence[StreamsGroupDescribeResponseSubtopology] | None


class StreamsGroupDescribeResponseUserEndpoint(Entity):
    host: str
    port: int


class StreamsGroupDescribeResponseClientTag(Entity):
    key: str
    value: str


class StreamsGroupDescribeResponseTaskOffset(Entity):
    subtopology_id: str
    partition: int
    offset: int


class StreamsGroupDescribeResponseTaskEndOffset(Entity):
    subtopology_id: str
    partition: int
    offset: int


class StreamsGroupDescribeResponseActiveTask(Entity):
    subtopology_id: str
    partitions: Sequence[int]


class StreamsGroupDescribeResponseStandbyTask(Entity):
    subtopology_id: str
    partitions: Sequence[int]


class StreamsGroupDescribeResponseWarmupTask(Entity):
    subtopology_id: str
    partitions: Sequence[int]


class StreamsGroupDescribeResponseAssignment(Entity):
    active_tasks: Sequence[StreamsGroupDescribeResponseActiveTask]
    standby_tasks: Sequence[StreamsGroupDescribeResponseStandbyTask]
    warmup_tasks: Sequence[StreamsGroupDescribeResponseWarmupTask]


class StreamsGroupDescribeResponseTargetAssignment(Entity):
    active_tasks: Sequence[StreamsGroupDescribeResponseActiveTask]
    standby_tasks: Sequence[StreamsGroupDescribeResponseStandbyTask]
    warmup_tasks: Sequence[StreamsGroupDescribeResponseWarmupTask]


class StreamsGroupDescribeResponseMember(Entity):
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: StreamsGroupDescribeResponseUserEndpoint | None
    client_tags: Sequence[StreamsGroupDescribeResponseClientTag]
    task_offsets: Sequence[StreamsGroupDescribeResponseTaskOffset]
    task_end_offsets: Sequence[StreamsGroupDescribeResponseTaskEndOffset]
    assignment: StreamsGroupDescribeResponseAssignment
    target_assignment: StreamsGroupDescribeResponseTargetAssignment
    is_classic: bool


class StreamsGroupDescribeResponseNode(Entity):
    name: str
    node_type: int
    source_topics: Sequence[str]
    sink_topic: str | None
    stores: Sequence[str]
    successors: Sequence[str]


class StreamsGroupDescribeResponseTopologyDescriptionSubtopology(Entity):
    subtopology_id: str
    nodes: Sequence[StreamsGroupDescribeResponseNode]


class StreamsGroupDescribeResponseSource(Entity):
    name: str
    node_type: int
    source_topics: Sequence[str]
    sink_topic: str | None
    stores: Sequence[str]
    successors: Sequence[str]


class StreamsGroupDescribeResponseProcessor(Entity):
    name: str
    node_type: int
    source_topics: Sequence[str]
    sink_topic: str | None
    stores: Sequence[str]
    successors: Sequence[str]


class StreamsGroupDescribeResponseGlobalStore(Entity):
    source: StreamsGroupDescribeResponseSource
    processor: StreamsGroupDescribeResponseProcessor


class StreamsGroupDescribeResponseTopologyDescription(Entity):
    subtopologies: Sequence[StreamsGroupDescribeResponseTopologyDescriptionSubtopology]
    global_stores: Sequence[StreamsGroupDescribeResponseGlobalStore]


class StreamsGroupDescribeResponseGroup(Entity):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    topology: StreamsGroupDescribeResponseTopology | None
    members: Sequence[StreamsGroupDescribeResponseMember]
    authorized_operations: int
    topology_description: StreamsGroupDescribeResponseTopologyDescription | None
    topology_description_status: int
    assignor_name: str | None


class StreamsGroupDescribeResponse(Entity):
    throttle_time_ms: int
    groups: Sequence[StreamsGroupDescribeResponseGroup]


class StreamsGroupDescribeAnswerTopicConfig(TypedDict, total=False):
    key: str
    value: str


class StreamsGroupDescribeAnswerStateChangelogTopic(TypedDict, total=False):
    name: str
    partitions: int
    replication_factor: int
    topic_configs: Array[StreamsGroupDescribeAnswerTopicConfig]


class StreamsGroupDescribeAnswerRepartitionSourceTopic(TypedDict, total=False):
    name: str
    partitions: int
    replication_factor: int
    topic_configs: Array[StreamsGroupDescribeAnswerTopicConfig]


class StreamsGroupDescribeAnswerSubtopology(TypedDict, total=False):
    subtopology_id: str
    source_topics: Array[str]
    repartition_sink_topics: Array[str]
    state_changelog_topics: Array[StreamsGroupDescribeAnswerStateChangelogTopic]
    repartition_source_topics: Array[StreamsGroupDescribeAnswerRepartitionSourceTopic]


class StreamsGroupDescribeAnswerTopology(TypedDict, total=False):
    epoch: int
    subtopologies: Array[StreamsGroupDescribeAnswerSubtopology] | None


class StreamsGroupDescribeAnswerUserEndpoint(TypedDict, total=False):
    host: str
    port: int


class StreamsGroupDescribeAnswerClientTag(TypedDict, total=False):
    key: str
    value: str


class StreamsGroupDescribeAnswerTaskOffset(TypedDict, total=False):
    subtopology_id: str
    partition: int
    offset: int


class StreamsGroupDescribeAnswerTaskEndOffset(TypedDict, total=False):
    subtopology_id: str
    partition: int
    offset: int


class StreamsGroupDescribeAnswerActiveTask(TypedDict, total=False):
    subtopology_id: str
    partitions: Array[int]


class StreamsGroupDescribeAnswerStandbyTask(TypedDict, total=False):
    subtopology_id: str
    partitions: Array[int]


class StreamsGroupDescribeAnswerWarmupTask(TypedDict, total=False):
    subtopology_id: str
    partitions: Array[int]


class StreamsGroupDescribeAnswerAssignment(TypedDict, total=False):
    active_tasks: Array[StreamsGroupDescribeAnswerActiveTask]
    standby_tasks: Array[StreamsGroupDescribeAnswerStandbyTask]
    warmup_tasks: Array[StreamsGroupDescribeAnswerWarmupTask]


class StreamsGroupDescribeAnswerTargetAssignment(TypedDict, total=False):
    active_tasks: Array[StreamsGroupDescribeAnswerActiveTask]
    standby_tasks: Array[StreamsGroupDescribeAnswerStandbyTask]
    warmup_tasks: Array[StreamsGroupDescribeAnswerWarmupTask]


class StreamsGroupDescribeAnswerMember(TypedDict, total=False):
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: StreamsGroupDescribeAnswerUserEndpoint | None
    client_tags: Array[StreamsGroupDescribeAnswerClientTag]
    task_offsets: Array[StreamsGroupDescribeAnswerTaskOffset]
    task_end_offsets: Array[StreamsGroupDescribeAnswerTaskEndOffset]
    assignment: StreamsGroupDescribeAnswerAssignment
    target_assignment: StreamsGroupDescribeAnswerTargetAssignment
    is_classic: bool


class StreamsGroupDescribeAnswerNode(TypedDict, total=False):
    name: str
    node_type: int
    source_topics: Array[str]
    sink_topic: str | None
    stores: Array[str]
    successors: Array[str]


class StreamsGroupDescribeAnswerTopologyDescriptionSubtopology(TypedDict, total=False):
    subtopology_id: str
    nodes: Array[StreamsGroupDescribeAnswerNode]


class StreamsGroupDescribeAnswerSource(TypedDict, total=False):
    name: str
    node_type: int
    source_topics: Array[str]
    sink_topic: str | None
    stores: Array[str]
    successors: Array[str]


class StreamsGroupDescribeAnswerProcessor(TypedDict, total=False):
    name: str
    node_type: int
    source_topics: Array[str]
    sink_topic: str | None
    stores: Array[str]
    successors: Array[str]


class StreamsGroupDescribeAnswerGlobalStore(TypedDict, total=False):
    source: StreamsGroupDescribeAnswerSource
    processor: StreamsGroupDescribeAnswerProcessor


class StreamsGroupDescribeAnswerTopologyDescription(TypedDict, total=False):
    subtopologies: Array[StreamsGroupDescribeAnswerTopologyDescriptionSubtopology]
    global_stores: Array[StreamsGroupDescribeAnswerGlobalStore]


class StreamsGroupDescribeAnswerGroup(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    topology: StreamsGroupDescribeAnswerTopology | None
    members: Array[StreamsGroupDescribeAnswerMember]
    authorized_operations: int
    topology_description: StreamsGroupDescribeAnswerTopologyDescription | None
    topology_description_status: int
    assignor_name: str | None


class StreamsGroupDescribeAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: Array[StreamsGroupDescribeAnswerGroup] = ...,
    ) -> None: ...


class StreamsGroupDescribe(
    ApiTypes[
        StreamsGroupDescribeRequest,
        StreamsGroupDescribeAnswer,
        StreamsGroupDescribeResponse,
    ]
):
    pass

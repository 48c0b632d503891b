"""Generated from `messages/Produce.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ProduceRequestPartitionData(Entity):
    index: int
    records: bytes | None


class ProduceRequestTopicData(Entity):
    name: str
    topic_id: TopicId | None
    partition_data: Sequence[ProduceRequestPartitionData]


class ProduceRequest(Entity):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: Sequence[ProduceRequestTopicData]


class ProduceResponseRecordError(Entity):
    batch_index: int
    batch_index_error_message: str | None


class ProduceResponseCurrentLeader(Entity):
    leader_id: int
    leader_epoch: int


class ProduceResponsePartitionResponse(Entity):
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: Sequence[ProduceResponseRecordError]
    error_message: str | None
    current_leader: ProduceResponseCurrentLeader


class ProduceResponseResponse(Entity):
    name: str
    topic_id: TopicId | None
    partition_responses: Sequence[ProduceResponsePartitionResponse]


class ProduceResponseNodeEndpoint(Entity):
    node_id: int
    host: str
    port: int
    rack: str | None


class ProduceResponse(Entity):
    responses: Sequence[ProduceResponseResponse]
    throttle_time_ms: int
    node_endpoints: Sequence[ProduceResponseNodeEndpoint]


class ProduceAnswerRecordError(TypedDict, total=False):
    batch_index: int
    batch_index_error_message: str | None


class ProduceAnswerCurrentLeader(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class ProduceAnswerPartitionResponse(TypedDict, total=False):
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: Array[ProduceAnswerRecordError]
    error_message: str | None
    current_leader: ProduceAnswerCurrentLeader


class ProduceAnswerResponse(TypedDict, total=False):
    name: str
    topic_id: TopicId | None
    partition_responses: Array[ProduceAnswerPartitionResponse]


class ProduceAnswerNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class ProduceAnswer(Protocol):
    def __call__(
        self,
        *,
        responses: Array[ProduceAnswerResponse] = ...,
        throttle_time_ms: int = ...,
        node_endpoints: Array[ProduceAnswerNodeEndpoint] = ...,
    ) -> None: ...


class Produce(
    ApiTypes[
        ProduceRequest,
        ProduceAnswer,
        ProduceResponse,
    ]
):
    pass

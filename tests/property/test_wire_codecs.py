"""The codecs written by hand agree with kio byte for byte, in every version and both ways."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.kio_entities import (
    epoch_ms,
    milliseconds,
    request_frame,
    requests,
    response_frame,
    responses,
    versions_of,
)

from cordwood.model.identifiers import NO_BROKER_EPOCH, NO_LEADER_EPOCH, NO_OFFSET
from cordwood.model.identifiers import ZERO_TOPIC_ID as ZERO
from cordwood.wire.api_versions import (
    ApiVersionsRequest,
    FinalizedFeature,
    SupportedFeature,
    decode_api_versions,
    encode_api_versions_response,
)
from cordwood.wire.apis import Api
from cordwood.wire.endpoints import NodeEndpoint
from cordwood.wire.fetch import MAX_VERSION, UNKNOWN_HIGH_WATERMARK, FetchPartition, FetchRequest, decode_fetch
from cordwood.wire.fetched import FetchedPartition, Part, encode_fetch_response
from cordwood.wire.metadata import (
    OPERATIONS_NOT_ASKED_FOR,
    MetadataRequest,
    PartitionMetadata,
    RequestedTopic,
    TopicMetadata,
    decode_metadata,
    encode_metadata_response,
    encode_topic,
    layout_of,
)
from cordwood.wire.produce import ProducedPartition, ProduceRequest, decode_produce, encode_produce_response
from cordwood.wire.requests import parse_header

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
CORRELATION_ID = 77

examples = settings(max_examples=12, deadline=None, derandomize=True)


def endpoints(entity: Any) -> list[NodeEndpoint]:
    found = getattr(entity, "node_endpoints", ())
    return [NodeEndpoint(node.node_id, node.host, node.port, node.rack) for node in found]


def topic_of(entity: Any) -> Any:
    """kio gives None for the zero id, and has the topic's name under different names."""
    if hasattr(entity, "topic_id"):
        return entity.topic_id or ZERO
    return entity.name if hasattr(entity, "name") else entity.topic


class Elsewhere:
    """Records that are not in memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.length = len(content)


def joined(parts: list[Part]) -> bytes:
    return b"".join(part.content if isinstance(part, Elsewhere) else part for part in parts)  # type: ignore[misc]


@pytest.mark.parametrize("version", versions_of(PRODUCE))
@examples
@given(data=st.data())
def test_a_produce_request_is_read_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    entity = data.draw(requests(PRODUCE, version))
    frame = memoryview(bytearray(request_frame(entity)))
    assert decode_produce(parse_header(frame), frame) == ProduceRequest(
        entity.transactional_id,
        entity.acks,
        milliseconds(entity.timeout),
        [(topic_of(topic), [(p.index, p.records) for p in topic.partition_data]) for topic in entity.topic_data],
    )


@pytest.mark.parametrize("version", versions_of(PRODUCE))
@examples
@given(data=st.data())
def test_a_produce_response_has_the_bytes_that_kio_writes(version: int, data: st.DataObject) -> None:
    entity = data.draw(responses(PRODUCE, version))
    topics = [
        (
            topic_of(topic),
            [
                ProducedPartition(
                    p.index,
                    p.error_code,
                    p.base_offset,
                    epoch_ms(p.log_append_time),
                    getattr(p, "log_start_offset", -1),
                    [(e.batch_index, e.batch_index_error_message) for e in getattr(p, "record_errors", ())],
                    getattr(p, "error_message", None),
                    leader_of(p),
                )
                for p in topic.partition_responses
            ],
        )
        for topic in entity.responses
    ]
    written = encode_produce_response(
        version,
        CORRELATION_ID,
        topics,
        throttle_time_ms=milliseconds(entity.throttle_time),
        node_endpoints=endpoints(entity),
    )
    assert written == response_frame(entity, CORRELATION_ID)


def leader_of(partition: Any) -> tuple[int, int] | None:
    leader = getattr(partition, "current_leader", None)
    return None if leader is None else (leader.leader_id, leader.leader_epoch)


@pytest.mark.parametrize("version", versions_of(FETCH))
@examples
@given(data=st.data())
def test_a_fetch_request_is_read_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    entity = data.draw(requests(FETCH, version))
    frame = memoryview(bytearray(request_frame(entity)))
    state = getattr(entity, "replica_state", entity)
    assert decode_fetch(parse_header(frame), frame) == FetchRequest(
        replica_id=state.replica_id,
        replica_epoch=getattr(state, "replica_epoch", NO_BROKER_EPOCH),
        max_wait_ms=milliseconds(entity.max_wait),
        min_bytes=entity.min_bytes,
        max_bytes=entity.max_bytes,
        isolation_level=entity.isolation_level,
        session_id=getattr(entity, "session_id", 0),
        session_epoch=getattr(entity, "session_epoch", -1),
        topics=[
            (
                topic_of(topic),
                [
                    FetchPartition(
                        p.partition,
                        getattr(p, "current_leader_epoch", NO_LEADER_EPOCH),
                        p.fetch_offset,
                        getattr(p, "last_fetched_epoch", NO_LEADER_EPOCH),
                        getattr(p, "log_start_offset", NO_OFFSET),
                        p.partition_max_bytes,
                        getattr(p, "replica_directory_id", None),
                        getattr(p, "high_watermark", UNKNOWN_HIGH_WATERMARK),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in entity.topics
        ],
        forgotten=[(topic_of(topic), topic.partitions) for topic in getattr(entity, "forgotten_topics_data", ())],
        rack_id=getattr(entity, "rack_id", ""),
        cluster_id=getattr(entity, "cluster_id", None),
    )


@pytest.mark.parametrize("version", versions_of(FETCH))
@examples
@given(data=st.data())
def test_a_fetch_response_has_the_bytes_that_kio_writes_wherever_its_records_are(
    version: int, data: st.DataObject
) -> None:
    entity = data.draw(responses(FETCH, version))
    places: tuple[Callable[[bytes], Part], ...] = (bytes, bytearray, memoryview, Elsewhere)
    kept = data.draw(st.sampled_from(places))

    def aborted(partition: Any) -> list[tuple[int, int]] | None:
        found = partition.aborted_transactions
        return None if found is None else [(t.producer_id, t.first_offset) for t in found]

    topics = [
        (
            topic_of(topic),
            [
                FetchedPartition(
                    p.partition_index,
                    p.error_code,
                    p.high_watermark,
                    p.last_stable_offset,
                    getattr(p, "log_start_offset", -1),
                    None if p.records is None else kept(p.records),
                    aborted(p),
                    getattr(p, "preferred_read_replica", -1),
                    (p.diverging_epoch.epoch, p.diverging_epoch.end_offset) if version >= 12 else None,
                    leader_of(p),
                    (p.snapshot_id.end_offset, p.snapshot_id.epoch) if version >= 12 else None,
                )
                for p in topic.partitions
            ],
        )
        for topic in entity.responses
    ]
    parts = encode_fetch_response(
        version,
        CORRELATION_ID,
        topics,
        error_code=getattr(entity, "error_code", 0),
        session_id=getattr(entity, "session_id", 0),
        throttle_time_ms=milliseconds(entity.throttle_time),
        node_endpoints=endpoints(entity),
    )
    assert joined(parts) == response_frame(entity, CORRELATION_ID)


@pytest.mark.parametrize("version", versions_of(METADATA))
@examples
@given(data=st.data())
def test_a_metadata_request_is_read_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    entity = data.draw(requests(METADATA, version))
    frame = request_frame(entity)
    topics = entity.topics
    if topics is not None:
        topics = [RequestedTopic(topic.name, getattr(topic, "topic_id", None)) for topic in topics]
    assert decode_metadata(parse_header(frame), frame) == MetadataRequest(
        None if version == 0 and not topics else topics,
        getattr(entity, "allow_auto_topic_creation", True),
        getattr(entity, "include_cluster_authorized_operations", False),
        getattr(entity, "include_topic_authorized_operations", False),
    )


@pytest.mark.parametrize("version", versions_of(METADATA))
@examples
@given(data=st.data())
def test_a_metadata_response_has_the_bytes_that_kio_writes(version: int, data: st.DataObject) -> None:
    entity = data.draw(responses(METADATA, version))
    topics = [
        TopicMetadata(
            topic.name,
            getattr(topic, "topic_id", None),
            [
                PartitionMetadata(
                    p.partition_index,
                    p.leader_id,
                    getattr(p, "leader_epoch", -1),
                    p.replica_nodes,
                    p.isr_nodes,
                    getattr(p, "offline_replicas", ()),
                    p.error_code,
                )
                for p in topic.partitions
            ],
            getattr(topic, "is_internal", False),
            topic.error_code,
            getattr(topic, "topic_authorized_operations", OPERATIONS_NOT_ASKED_FOR),
        )
        for topic in entity.topics
    ]
    written = encode_metadata_response(
        version,
        CORRELATION_ID,
        brokers=[NodeEndpoint(b.node_id, b.host, b.port, getattr(b, "rack", None)) for b in entity.brokers],
        cluster_id=getattr(entity, "cluster_id", None),
        controller_id=getattr(entity, "controller_id", -1),
        topics=[encode_topic(version, topic) for topic in topics],
        throttle_time_ms=milliseconds(entity.throttle_time) if version >= 3 else 0,
        cluster_authorized_operations=getattr(entity, "cluster_authorized_operations", OPERATIONS_NOT_ASKED_FOR),
        error_code=getattr(entity, "error_code", 0),
    )
    assert written == response_frame(entity, CORRELATION_ID)
    for topic in topics:
        if topic.name is not None:
            assert encode_topic(layout_of(version), topic) == encode_topic(version, topic)


@pytest.mark.parametrize("version", versions_of(API_VERSIONS))
@examples
@given(data=st.data())
def test_an_api_versions_request_is_read_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    entity = data.draw(requests(API_VERSIONS, version))
    frame = request_frame(entity)
    expected = ApiVersionsRequest()
    if version >= 3:
        expected = ApiVersionsRequest(entity.client_software_name, entity.client_software_version)
    assert decode_api_versions(parse_header(frame), frame) == expected


@pytest.mark.parametrize("version", versions_of(API_VERSIONS))
@examples
@given(data=st.data())
def test_an_api_versions_response_has_the_bytes_that_kio_writes(version: int, data: st.DataObject) -> None:
    kind = responses(API_VERSIONS, version)
    entity = data.draw(kind)
    rows = sorted(entity.api_keys, key=lambda row: (row.api_key, row.min_version, row.max_version))
    supported = getattr(entity, "supported_features", ())
    changes: dict[str, Any] = {"api_keys": tuple(rows)}
    if version >= 3:
        # A broker without ZooKeeper never sets this one.
        changes["zk_migration_ready"] = False
    if version == 3:
        changes["supported_features"] = tuple(feature for feature in supported if feature.min_version > 0)
    written = encode_api_versions_response(
        version,
        CORRELATION_ID,
        [Api(row.api_key, "", row.min_version, row.max_version, 0) for row in rows],
        supported_features=[SupportedFeature(f.name, f.min_version, f.max_version) for f in supported],
        finalized_features=[
            FinalizedFeature(f.name, f.max_version_level, f.min_version_level)
            for f in getattr(entity, "finalized_features", ())
        ],
        finalized_features_epoch=getattr(entity, "finalized_features_epoch", -1),
        error_code=entity.error_code,
        throttle_time_ms=milliseconds(entity.throttle_time) if version >= 1 else 0,
    )
    assert written == response_frame(replace(entity, **changes), CORRELATION_ID)


def test_kio_has_no_newer_fetch_that_we_would_miss() -> None:
    assert versions_of(FETCH)[-1] == MAX_VERSION

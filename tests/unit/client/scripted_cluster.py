"""Two brokers that answer as a test tells them, on real sockets and with the real codecs.

The brokers show what one real broker cannot: leaders and coordinators that move, and answers that come once in a
thousand.
"""

from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.unit.client.scripted_peer import Peer, ScriptedPeer

from cordwood.client.cluster import Cluster
from cordwood.client.settings import ClientSettings
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.records.batch import assign_offset, read_header
from cordwood.wire.api_versions import encode_api_versions_response, encode_unsupported_version
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.fetch import FetchPartition, decode_fetch
from cordwood.wire.fetched import FetchedPartition, encode_fetch_response
from cordwood.wire.produce import ProducedPartition, decode_produce, encode_produce_response
from cordwood.wire.requests import RequestHeader, decode_request, encode_response, parse_header

TOPIC = "orders"
TOPIC_ID = TopicId(int=0xABCDEF)
NODES = (1, 2)
Refusal = Callable[[int, int], ErrorCode]
"""The error that a node answers for a partition; NONE: the real answer."""


class ScriptedCluster:
    """A cluster with one topic. Its log, leader and coordinator are attributes that a test reads and changes."""

    def __init__(self, partitions: int = 2) -> None:
        self.leaders = dict.fromkeys(range(partitions), 1)
        self.coordinator = 1
        self.log: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
        self.refusals: dict[ApiKey, list[Refusal]] = defaultdict(list)
        self.asked: list[tuple[int, ApiKey]] = []
        self.knows_api_versions = True
        self.hidden = 0
        """The number of fetches that find no records although there are some."""
        self.positions: dict[str, int] = {}
        self._peers = {node: ScriptedPeer(lambda peer, node=node: self._serve(node, peer)) for node in NODES}  # type: ignore[misc]

    def __enter__(self) -> Self:
        for peer in self._peers.values():
            peer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for peer in self._peers.values():
            peer.__exit__(kind, error, trace)

    def client(self, **settings: int) -> Cluster:
        servers = ",".join(f"127.0.0.1:{self._peers[node].port}" for node in NODES)
        options: dict[str, Any] = {"retry_backoff_ms": 1, "retry_timeout_ms": 60_000, "fetch_max_wait_ms": 1}
        return Cluster(ClientSettings(servers, **options | settings))

    def refuse(self, api_key: ApiKey, code: ErrorCode, times: int = 1, *, node: int | None = None) -> None:
        """Makes the next answers to this API, of this node or of any, this error. Each answer counts once."""
        for _ in range(times):
            self.refusals[api_key].append(lambda asked, _: code if node is None or asked == node else ErrorCode.NONE)

    def hang_up(self, node: int) -> None:
        self._peers[node].hang_up()

    def _refusal(self, node: int, api_key: ApiKey, partition: int = -1) -> ErrorCode:
        for refusal in self.refusals[api_key]:
            code = refusal(node, partition)
            if code is not ErrorCode.NONE:
                self.refusals[api_key].remove(refusal)
                return code
        return ErrorCode.NONE

    def _serve(self, node: int, peer: Peer) -> None:
        while True:
            frame = memoryview(bytearray(peer.frame()))
            header = parse_header(frame)
            api_key = ApiKey(header.api_key)
            self.asked.append((node, api_key))
            answer = getattr(self, f"_{api_key.name.lower()}")
            peer.socket.sendall(answer(node, header, frame))

    def _api_versions(self, node: int, header: RequestHeader, frame: memoryview) -> bytes:
        if not self.knows_api_versions and header.api_version > 0:
            return encode_unsupported_version(header.correlation_id)
        return encode_api_versions_response(header.api_version, header.correlation_id, APIS.values())

    def _metadata(self, node: int, header: RequestHeader, frame: memoryview) -> bytes:
        partitions = [
            {"partition_index": index, "leader_id": leader, "leader_epoch": 0} for index, leader in self.leaders.items()
        ]
        asked = decode_request(header, frame).topics
        topics = [
            {"name": TOPIC, "topic_id": TOPIC_ID, "partitions": partitions}
            if each.name == TOPIC
            else {"name": each.name, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            for each in asked
        ]
        brokers = [{"node_id": node, "host": "127.0.0.1", "port": peer.port} for node, peer in self._peers.items()]
        return encode_response(header, {"brokers": brokers, "topics": topics})

    def _produce(self, node: int, header: RequestHeader, frame: memoryview) -> bytes:
        ((topic, batches),) = decode_produce(header, frame).topics
        rows = []
        for index, records in batches:
            assert records is not None
            code = self._refusal(node, ApiKey.PRODUCE, index)
            if code is ErrorCode.NONE and self.leaders[index] != node:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            base_offset = -1
            if code is ErrorCode.NONE:
                code, base_offset = self._append(index, bytes(records))
            rows.append(ProducedPartition(index, code, base_offset))
        return encode_produce_response(header.api_version, header.correlation_id, [(topic, rows)])

    def _append(self, index: int, batch: bytes) -> tuple[ErrorCode, int]:
        log, header = self.log[index], read_header(batch)
        expected = sum(read_header(stored).record_count for stored in log)
        # Kafka, too, lets a producer that the partition does not know begin with any sequence number.
        if header.producer_id >= 0 and header.base_sequence != expected and log:
            late = header.base_sequence < expected
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER if late else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        placed = bytearray(batch)
        assign_offset(placed, expected, 0)
        log.append(bytes(placed))
        return ErrorCode.NONE, expected

    def _fetch(self, node: int, header: RequestHeader, frame: memoryview) -> bytes:
        topics = [
            (topic, [self._found(node, asked) for asked in partitions])
            for topic, partitions in decode_fetch(header, frame).topics
        ]
        parts = encode_fetch_response(header.api_version, header.correlation_id, topics)
        return b"".join(part for part in parts if isinstance(part, bytes))

    def _found(self, node: int, asked: FetchPartition) -> FetchedPartition:
        log = self.log[asked.partition]
        end = sum(read_header(batch).record_count for batch in log)
        code = self._refusal(node, ApiKey.FETCH, asked.partition)
        if code is ErrorCode.NONE and self.leaders[asked.partition] != node:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = next((batch for batch in log if read_header(batch).next_offset > asked.fetch_offset), b"")
        if self.hidden and asked.fetch_offset != end - 1:
            self.hidden -= 1
            found = b""
        return FetchedPartition(asked.partition, code, end, end, 0, b"" if code else found)

    def _list_offsets(self, node: int, header: RequestHeader, frame: memoryview) -> bytes:
        rows = []
        for asked in decode_request(header, frame).topics[0].partitions:
            index = asked.partition_index
            code = self._refusal(node, ApiKey.LIST_OFFSETS, index)
            if code is ErrorCode.NONE and self.leaders[index] != node:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            rows.append({"partition_index": index, "error_code": code, "offset": len(self.log[index])})
        return encode_response(header, {"topics": [{"name": TOPIC, "partitions": rows}]})

    def _find_coordinator(self, node: int, header: RequestHeader, frame: memoryview) -> bytes:
        (key,) = decode_request(header, frame).coordinator_keys
        code = self._refusal(node, ApiKey.FIND_COORDINATOR)
        found = {"key": key, "error_code": code, "error_message": None}
        if code is ErrorCode.NONE:
            found |= {"node_id": self.coordinator, "host": "127.0.0.1", "port": self._peers[self.coordinator].port}
        return encode_response(header, {"coordinators": [found]})

    def _offset_commit(self, node: int, header: RequestHeader, frame: memoryview) -> bytes:
        (row,) = decode_request(header, frame).topics[0].partitions
        code = self._refusal(node, ApiKey.OFFSET_COMMIT)
        if code is ErrorCode.NONE and node != self.coordinator:
            code = ErrorCode.NOT_COORDINATOR
        if code is ErrorCode.NONE:
            self.positions[TOPIC] = row.committed_offset
        partitions = [{"partition_index": row.partition_index, "error_code": code}]
        return encode_response(header, {"topics": [{"name": TOPIC, "partitions": partitions}]})

"""Clients on the made-up network: connections, the requests on them, and the outcome of each request.

A request is a frame that travels to the node, and its answer a frame that travels back; the simulator picks the
moments. Requests of one connection arrive in order. Answers are matched by their exchange, since the order of answers
is the broker's duty, not the node's. Records of an answer are read when the answer is sent and again when it arrives:
they must not have changed.
"""

import struct
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from cordwood.log.reading.lookup import LogSlice
from cordwood.log.upkeep.retention import CONDEMNED
from cordwood.model.errors import EnvironmentFailure
from cordwood.model.moment import Moment
from cordwood.model.settings.listeners import PLAINTEXT, Callers, Entrance
from cordwood.node.loop.ports import Frame
from cordwood.security.sessions import Session, session_at
from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.asking import header_tags
from cordwood.wire.encoding.codec import Read, Write, reader, writer
from cordwood.wire.encoding.schema import Message, load
from cordwood.wire.requests import Sender, parse_header
from simulation.world.broken import InvariantBroken
from simulation.world.disk import SimulatedFile
from simulation.world.links import CLIENTS

if TYPE_CHECKING:
    from cordwood.node.node import Node

CLIENT_ID = "simulated"
_HEADER = struct.Struct(">hhih")
_GARBAGE = 0xA5


EVERYBODY = Entrance(PLAINTEXT, Callers.BROKERS)
"""The entrance of brokers and clients."""


@cache
def _messages(key: int) -> dict[str, Message]:
    return load(APIS[key].name)


@cache
def _request_writer(key: int, version: int) -> Write:
    return writer(_messages(key)["request"], version)


@cache
def _response_reader(key: int, version: int) -> Read:
    return reader(_messages(key)["response"], version)


def encode_request(
    key: int,
    version: int,
    correlation_id: int,
    values: Mapping[str, Any],
    image_revision: int = 0,
    sender: Sender | None = None,
) -> bytearray:
    """A frame without its size, as the broker's reader hands it to the node."""
    client = CLIENT_ID.encode()
    parts = [_HEADER.pack(key, version, correlation_id, len(client)), client]
    if flexible(key, version):
        parts.append(header_tags(image_revision, sender))
    _request_writer(key, version)(values, parts.append)
    return bytearray(b"".join(parts))


def decode_response(key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """Correlation id and entity of a whole frame with its size. InvariantBroken if it is not exactly one response."""
    size, correlation_id = struct.unpack_from(">ii", frame)
    if size != len(frame) - 4:
        raise InvariantBroken(f"{ApiKey(key).name} v{version}: the frame says {size} bytes and has {len(frame) - 4}")
    position = 8
    if flexible(key, version) and key != ApiKey.API_VERSIONS:
        position += 1
    entity, end = _response_reader(key, version)(memoryview(frame), position)
    if end != len(frame):
        raise InvariantBroken(f"{ApiKey(key).name} v{version}: {len(frame) - end} bytes follow the response")
    return correlation_id, entity


class CutShort(Exception):
    """The file of a topic that is being deleted is already empty, or a deposed leader has cut its log."""


class State(Enum):
    """The progress of an exchange."""

    TRAVELLING = "the request is on its way"
    WAITING = "the node has it"
    SENT = "the answer is on its way"
    ANSWERED = "the client has the answer"
    NOTHING = "there is no answer to such a request"
    HUNG_UP = "the broker closed the connection instead of an answer"
    LOST = "the connection is gone, or the broker"


ENDED = frozenset({State.ANSWERED, State.NOTHING, State.HUNG_UP, State.LOST})


class Exchange:
    """One request and its answer; the node's `Reply`."""

    def __init__(
        self, connection: "Connection", key: ApiKey, version: int, values: Mapping[str, Any], correlation_id: int
    ) -> None:
        self.connection = connection
        self.connection_id = connection.connection_id
        self.session = connection.session
        self.key = key
        self.version = version
        self.values = values
        self.correlation_id = correlation_id
        self.image_revision = 0
        self.sender: Sender | None = None
        """The revision of the metadata that the sender knew, if the sender is a broker."""
        self.state = State.TRAVELLING
        self.replies = 0
        self.answer: Any = None
        """The response as an entity, once the node has sent it."""
        self.handled_ms = self.replied_ms = 0
        """The moments of the request's arrival and of the answer, by the monotonic clock."""
        self.paused_ms = 0
        """The time for which the node asked to take no further request of the connection. The network goes on: a node
        has to be right whatever its driver brings."""
        self.hang_up_reason = ""
        self._frame: Frame = b""
        self._bytes = b""
        self.on_end: Callable[[Exchange], None] | None = None

    def __repr__(self) -> str:
        return f"{self.key.name} v{self.version} #{self.correlation_id} on {self.connection_id}"

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def answered(self) -> bool:
        return self.state is State.ANSWERED

    @property
    def answer_size(self) -> int:
        """The bytes of the answer."""
        return len(self._bytes)

    # Reply

    def send(self, frame: Frame) -> None:
        self._replied()
        if self.state is State.LOST:
            return
        self._frame = frame
        self.state = State.SENT
        try:
            self._bytes = _content(frame, _peek, may_be_cut=self._to_broker)
        except (EnvironmentFailure, CutShort):
            # Records were found, and removed before they could be sent (file.delete.delay.ms=0): delivery fails, too.
            self.connection.network.answers.append(self)
            return
        correlation_id, self.answer = decode_response(self.key, self.version, self._bytes)
        if correlation_id != self.correlation_id:
            raise InvariantBroken(f"{self} was answered with correlation id {correlation_id}")
        self.connection.network.sent(self)

    def hold(self) -> None:
        self.connection.holds += 1

    def release(self) -> None:
        self.connection.holds -= 1

    def pause(self, for_ms: int) -> None:
        self.paused_ms = max(self.paused_ms, for_ms)

    def nothing(self) -> None:
        self._replied()
        if self.state is not State.LOST:
            self._end(State.NOTHING)

    def send_last(self, frame: Frame, reason: str) -> None:
        self.hang_up_reason = reason
        self.connection.last = self
        self.send(frame)

    def begin(self, session: Session) -> None:
        self.connection.session = session

    def hang_up(self, reason: str) -> None:
        self._replied()
        self.hang_up_reason = reason
        if self.state is not State.LOST:
            self._end(State.HUNG_UP)
            self.connection.hung_up()

    def _replied(self) -> None:
        self.replies += 1
        self.replied_ms = self.connection.network.boot_ms()
        if self.replies > 1:
            raise InvariantBroken(f"{self} was answered {self.replies} times")
        if self.state not in (State.WAITING, State.LOST):
            raise InvariantBroken(f"{self} was answered before it arrived")

    # The network

    @property
    def _to_broker(self) -> bool:
        """True if a broker asked. Followers read beyond the high watermark, where a log may be cut."""
        return self.connection.source != CLIENTS

    def deliver_answer(self) -> None:
        """Delivers the answer, and reads its records from their files."""
        assert self.state is State.SENT
        try:
            content = _content(self._frame, _read, may_be_cut=self._to_broker)
        except (EnvironmentFailure, CutShort):
            # The broker cannot send the records that it has announced: the connection is closed.
            self.connection.hung_up()
            return
        if content != self._bytes and self._to_broker:
            # A deposed leader has cut its log, and has other records in this place by now.
            _, self.answer = decode_response(self.key, self.version, content)
        elif content != self._bytes:
            raise InvariantBroken(f"the records in the answer to {self} changed while it was on its way")
        self._frame = self._bytes = b""
        self._end(State.ANSWERED)
        if self.connection.last is self:
            self.connection.hung_up()

    def carries(self, path: str) -> bool:
        """True if the answer on its way has records of this file."""
        parts = () if isinstance(self._frame, bytes) else self._frame
        return any(isinstance(part, LogSlice) and part.file.path == path for part in parts)

    def lose(self) -> None:
        if not self.ended:
            self._frame = self._bytes = b""
            self._end(State.LOST)

    def _end(self, state: State) -> None:
        self.state = state
        self.connection.ended(self)
        if self.on_end is not None:
            self.on_end(self)


def _content(frame: Frame, read: Callable[[LogSlice], bytes], *, may_be_cut: bool) -> bytes:
    if isinstance(frame, bytes):
        return frame
    parts = []
    for part in frame:
        if isinstance(part, LogSlice):
            data = read(part)
            if len(data) != part.length:
                if may_be_cut or CONDEMNED in part.file.path:
                    raise CutShort(part.file.path)
                raise InvariantBroken(f"{part.file.path} has {len(data)} of {part.length} bytes that were announced")
            parts.append(data)
        else:
            parts.append(part)
    return b"".join(parts)


def _read(part: LogSlice) -> bytes:
    return part.file.read(part.position, part.length)


def _peek(part: LogSlice) -> bytes:
    file = part.file
    return file.peek(part.position, part.length) if isinstance(file, SimulatedFile) else _read(part)


class Connection:
    """A connection with many requests under way. Either side can close it at any time."""

    def __init__(self, network: "Network", connection_id: int, source: int) -> None:
        self.network = network
        self.connection_id = connection_id
        self.session = session_at(network.entrance, "simulated")
        self.last: Exchange | None = None
        """The exchange with whose answer the broker closes the connection; None: it does not."""
        self.source = source
        """The side that connected: a broker, or clients."""
        self.open = True
        self.holds = 0
        """True if the node takes no request of this connection now."""
        self.stuck_until_ms: int | None = None
        """Nothing of this connection arrives before this time on the broker's boot clock."""
        self.travelling: deque[Exchange] = deque()
        self.under_way: dict[int, Exchange] = {}

    def request(
        self,
        key: ApiKey,
        version: int,
        values: Mapping[str, Any],
        on_end: Callable[[Exchange], None] | None = None,
        image_revision: int = 0,
        sender: Sender | None = None,
    ) -> Exchange:
        """Sends a request; the simulator picks the moment of its arrival."""
        assert self.open
        exchange = Exchange(self, key, version, values, self.network.next_correlation_id())
        exchange.on_end = on_end
        exchange.image_revision, exchange.sender = image_revision, sender
        self.under_way[exchange.correlation_id] = exchange
        self.travelling.append(exchange)
        return exchange

    def ended(self, exchange: Exchange) -> None:
        self.under_way.pop(exchange.correlation_id, None)

    def close(self) -> None:
        """Closes the client's side: its exchanges are lost. Requests that the client has sent may still arrive."""
        if self.open:
            self.open = False
            for exchange in list(self.under_way.values()):
                exchange.lose()

    def hung_up(self) -> None:
        """Closes the broker's side: requests that the node has not seen are dropped."""
        self.travelling.clear()
        self.close()


class Network:
    """All connections to one broker, in its present life."""

    def __init__(self, boot_ms: Callable[[], int]) -> None:
        self.boot_ms = boot_ms
        self.entrance = EVERYBODY
        """The listener of new connections."""
        self.connections: list[Connection] = []
        self.answers: list[Exchange] = []
        """Answers on their way."""
        self.on_sent: Callable[[Exchange], None] | None = None
        """Called with each answer at the moment when the node gives it."""
        self.on_request: Callable[[Exchange], None] | None = None
        """Called with each request before the node gets it."""
        self.requests_handled = 0
        self.handling: Exchange | None = None
        """The request that the node handles now."""
        self._node: Node | None = None
        self._connection_ids = 0
        self._correlation_ids = 0

    def attach(self, node: "Node | None") -> None:
        self._node = node

    @property
    def attached(self) -> bool:
        return self._node is not None

    def connect(self, source: int = CLIENTS) -> Connection:
        self._connection_ids += 1
        connection = Connection(self, self._connection_ids, source)
        self.connections.append(connection)
        return connection

    def next_correlation_id(self) -> int:
        self._correlation_ids += 1
        return self._correlation_ids

    def sent(self, exchange: Exchange) -> None:
        self.answers.append(exchange)
        if self.on_sent is not None:
            self.on_sent(exchange)

    def leader_epoch_of_group(self, group: str) -> int:
        """The leader epoch in which this broker coordinates the group."""
        assert self._node is not None
        partition = self._node.groups.positions.partition_of(group)
        hosted = self._node.hosted.get(*partition)
        return -1 if hosted is None else hosted.role.leader_epoch

    def refuse(self, connection: Connection) -> None:
        """Ends a connection to a broker that does not run."""
        self.connections.remove(connection)
        connection.hung_up()

    def drop(self, connection: Connection) -> None:
        """Tells the node that a connection is closed. Requests on their way are dropped."""
        self.connections.remove(connection)
        connection.travelling.clear()
        if self._node is not None:
            self._node.connection_closed(connection.connection_id)

    def deliver_request(self, connection: Connection, now: Moment) -> None:
        """Hands the connection's next request to the node. Its buffer is overwritten afterwards."""
        exchange = connection.travelling.popleft()
        assert self._node is not None
        assert not connection.holds
        if connection.last is not None:
            exchange.lose()
            return
        frame = encode_request(
            exchange.key,
            exchange.version,
            exchange.correlation_id,
            exchange.values,
            exchange.image_revision,
            exchange.sender,
        )
        if exchange.state is State.TRAVELLING:
            exchange.state = State.WAITING
        exchange.handled_ms = self.boot_ms()
        self.requests_handled += 1
        if self.on_request is not None:
            self.on_request(exchange)
        self.handling = exchange
        self._node.handle(parse_header(memoryview(frame)), memoryview(frame), exchange, now)
        self.handling = None
        frame[:] = bytes([_GARBAGE]) * len(frame)

    def deliver_answer(self, exchange: Exchange) -> None:
        self.answers.remove(exchange)
        if exchange.state is State.SENT:
            exchange.deliver_answer()

    def lose_everything(self) -> None:
        """Ends all connections: the broker is gone."""
        self._node = None
        self.answers.clear()
        connections, self.connections = self.connections, []
        for connection in connections:
            connection.hung_up()

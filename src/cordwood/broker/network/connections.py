"""All connections of a broker and the bounds that hold for them together.

Seven bounds hold: the number of connections, in all and from one address; how many come in a second
(`creation_rate.py`); the idle time of a connection; the bytes of requests that wait for an answer; the memory into
which large requests are received (`arriving.py`), and small ones (`half_requests.py`). At a bound in bytes connections
are not read from until there is room, or late ones are closed.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cordwood.broker.machine import clocks
from cordwood.broker.machine.loop_watch import LoopWatch
from cordwood.broker.network.activity import Activity
from cordwood.broker.network.arriving import LOOK_S, Arriving, Receiver
from cordwood.broker.network.client_counts import ClientBook, CountedConnection
from cordwood.broker.network.creation_rate import LONGEST_WAIT_S, CreationRate
from cordwood.broker.network.half_requests import HalfRequests
from cordwood.broker.network.outbox import Outbox
from cordwood.broker.network.seldom import SaidSeldom
from cordwood.broker.network.sending import SendingResources
from cordwood.model.errors import StorageFailure
from cordwood.model.moment import Moment
from cordwood.security.sessions import Session
from cordwood.wire.framing import REMEDIES, TLS, BufferPool
from cordwood.wire.requests import RequestHeader

if TYPE_CHECKING:
    from cordwood.node.loop.ports import Reply

logger = logging.getLogger("cordwood.broker")

LOG_IN_S: Final = 10.0
"""The time in which a peer has to say who it is, where a listener asks."""

MOST_STRANGERS: Final = 100
"""The most connections at the listener of brokers that have not proved to be a broker's: those of operators, and of
brokers in their first milliseconds. The oldest one of the address that has most makes way for the next, so that a
flood from one address pushes out itself, and no broker in the middle of its handshake."""
MAKES_WAY_AFTER_S: Final = 1.0
"""The time that a client has for its log-in even if others wait for its connection."""
LOOKED_AT_ONCE: Final = 1_000
"""Paused connections that are looked at in one sweep: a look takes about a microsecond."""
_SWEEP_S: Final = LOOK_S
_SELDOM_S: Final = 15.0
"""The longest pause between idle checks. A check of ten thousand connections takes milliseconds."""


class Node(Protocol):
    """The part of a node that connections need."""

    def handle(self, header: RequestHeader, frame: memoryview, reply: "Reply", now: Moment) -> None: ...

    def connection_closed(self, connection_id: int) -> None: ...


class Quotas(Protocol):
    """The quotas of clients, as far as connections have to do with them."""

    counts_time: bool
    """True if there is any quota of the loop's time."""

    @property
    def addresses(self) -> "Addresses": ...

    def spent(self, header: RequestHeader, session: Session, time_ms: float) -> None: ...


class Addresses(Protocol):
    def wait_ms(self, host: str, now_ms: int) -> int | None:
        """How long a new connection waits before it is read; None: too long."""


class OpenConnection(Receiver, CountedConnection, Protocol):
    """One connection, as far as the bounds of all concern it."""

    connection_id: int
    for_brokers: bool
    session: Session

    @property
    def last_active_s(self) -> float: ...

    @property
    def paused(self) -> bool:
        """True if its client is over a quota, and nothing is read from it."""

    @property
    def peer_has_gone(self) -> bool:
        """True if the peer has closed its end."""

    @property
    def has_to_prove(self) -> bool:
        """True if the peer has a handshake or a log-in to finish."""

    @property
    def quiet(self) -> bool:
        """True if every answer has been sent."""

    @property
    def waits_for_node(self) -> bool:
        """True if the node has to act next."""

    def stop_serving(self) -> None: ...

    def close(self, reason: str, level: int = logging.INFO) -> None: ...

    def close_after_sending(self) -> None: ...


class ConnectionLimits(NamedTuple):
    max_connections: int = 2**31 - 1
    max_connections_per_address: int = 2**31 - 1
    max_creation_rate: int = 2**31 - 1
    """New connections in a second."""
    max_idle_s: float = 600.0
    max_request_bytes: int = 104_857_600
    max_total_bytes: int = 256 * 1024 * 1024
    """The bytes of unanswered requests, and of the memory into which requests are received."""
    max_unanswered: int = 512
    """The most unanswered requests of one connection."""
    max_unanswered_bytes: int = 32 * 1024 * 1024
    """The bytes of one connection's unanswered requests. The last request may exceed the bound."""
    max_held_bytes: int = 1024 * 1024
    """The bytes of answers that may wait in memory before the peer has to take them."""
    max_waiting_parts: int = 1024


class Connections:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: Node,
        limits: ConnectionLimits,
        outbox: Outbox,
        sending: SendingResources,
        request_failed: Callable[[Exception], None],
        now: Callable[[], Moment] = clocks.now,
        activity: Activity | None = None,
        *,
        loop_watch: LoopWatch,
        is_broker: Callable[[RequestHeader], bool] = lambda header: False,
        quotas: Quotas | None = None,
        clients: ClientBook | None = None,
        records_unreadable: Callable[[str, StorageFailure], None] = lambda path, failure: None,
    ) -> None:
        self.loop = loop
        self.node = node
        self.limits = limits
        self.outbox = outbox
        self.sending = sending
        self.request_failed = request_failed
        self.is_broker = is_broker
        """Returns True if a request proves that another broker sent it."""
        self.records_unreadable = records_unreadable
        """Called with a file whose records could not be read when their answer was sent."""
        self.now = now
        self.loop_watch = loop_watch
        self.activity = activity
        """Counters for metrics; None: no metrics are served."""
        self.quotas = quotas
        """None: nobody has any."""
        self._clients = clients or ClientBook()
        self.receive_buffers = BufferPool(plenty_bytes=limits.max_total_bytes // 2)
        self.arriving = Arriving(limits.max_total_bytes)
        """The memory of requests that are arriving."""
        self._half_requests = HalfRequests(limits.max_total_bytes, self.receive_buffers.buffer_bytes)
        self.unanswered_bytes = 0
        self._open: dict[int, OpenConnection] = {}
        self._by_address: Counter[str] = Counter()
        """The number of clients' connections, by the client's address."""
        self._strangers: dict[int, OpenConnection] = {}
        """The connections at the listener of brokers that have not proved to be a broker's, in their order."""
        self._not_logged_in: dict[int, tuple[float, OpenConnection]] = {}
        """The connections whose peers have a handshake or a log-in to finish, with the times of their beginning, in
        order."""
        self.paused: dict[int, OpenConnection] = {}
        """The connections of clients over their quotas, which are not read."""
        self._last_id = 0
        self._creation_rate = CreationRate()
        self._stopping = False
        self._waiting_to_ask: deque[OpenConnection] = deque()
        self._quiet: asyncio.Event | None = None
        self.refused = 0
        self._refusals_said = SaidSeldom()
        self._other_protocols_said = SaidSeldom()
        self._closings_said = SaidSeldom()
        self._idle_check_s = min(max(limits.max_idle_s / 4, 0.01), _SELDOM_S)
        self._next_idle_check_s = 0.0
        self._sweep_timer = loop.call_later(self._sweep_interval_s, self._sweep)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def accepted(self) -> int:
        """The number of connections accepted since the start."""
        return self._last_id

    # Coming and going

    def admit(self, connection: OpenConnection) -> float | None:
        """Counts a new connection and gives it its id. Returns the time, in seconds, before the broker may read from
        it; None if there is no room for it."""
        for_brokers, host = connection.for_brokers, connection.client_host
        wait_s: float | None = 0.0
        quota_s: float | None = 0.0
        is_full = not for_brokers and len(self._open) >= self.limits.max_connections
        idler = self._idler() if is_full else None
        if self._stopping:
            reason = "the broker is stopping"
        elif is_full and idler is None:
            reason = (
                f"there are {len(self._open)} already, and {self.limits.max_connections} may be: see max.connections, "
                "and ulimit -n"
            )
        elif not for_brokers and self._by_address[host] >= self.limits.max_connections_per_address:
            reason = f"there are {self._by_address[host]} from its address already: see max.connections.per.ip"
        elif not for_brokers and (quota_s := self._quota_s(host)) is None:
            reason = (
                f"it would wait more than {LONGEST_WAIT_S:g} s for its turn: more come from its address than the quota "
                "connection_creation_rate allows, see `cordwood quota list`"
            )
        elif not for_brokers and (wait_s := self._turn_s()) is None:
            reason = (
                f"it would wait more than {LONGEST_WAIT_S:g} s for its turn: more than {self.limits.max_creation_rate} "
                "come in a second, see max.connection.creation.rate"
            )
        else:
            if for_brokers:
                self._make_way_for_broker()
            elif idler is not None:
                self._make_room(idler, "it has not logged in, another client connects, and there are max.connections")
            self._last_id += 1
            connection.connection_id = self._last_id
            self._open[self._last_id] = connection
            self._clients.opened(connection)
            if connection.has_to_prove:
                self._not_logged_in[self._last_id] = (self.loop.time(), connection)
            if for_brokers:
                self._strangers[self._last_id] = connection
            else:
                self._by_address[host] += 1
            return max(wait_s or 0.0, quota_s or 0.0)
        self.refused += 1
        if self._refusals_said.count("", self.loop.time()):
            logger.warning(
                "refusing a connection from %s: %s (%d so far)", connection.client_host, reason, self.refused
            )
        return None

    def _turn_s(self) -> float | None:
        return self._creation_rate.wait_s(self.limits.max_creation_rate, self.loop.time())

    def _quota_s(self, host: str) -> float | None:
        wait_ms = 0 if self.quotas is None else self.quotas.addresses.wait_ms(host, self.now().boot_ms)
        return None if wait_ms is None else wait_ms / 1000

    def _idler(self) -> OpenConnection | None:
        """The connection that makes way for another client: strangers who say nothing must not keep users away. Not
        beyond the bound, which may have been lowered: then all wait until there is room."""
        if len(self._open) > self.limits.max_connections:
            return None
        since_s = self.loop.time() - MAKES_WAY_AFTER_S
        for began_s, connection in self._not_logged_in.values():
            if began_s > since_s:
                break
            if not connection.for_brokers:
                return connection
        return None

    def _make_way_for_broker(self) -> None:
        """Closes a connection if there is no room for a new one at the listener of brokers. A client must not be able
        to keep followers away, at its own listener or at theirs: the new connection gets in even if one closed
        connection is not enough, as after max.connections was lowered, or if there is none to close."""
        if len(self._strangers) >= MOST_STRANGERS:
            ((crowded, _),) = Counter(each.client_host for each in self._strangers.values()).most_common(1)
            oldest = next(each for each in self._strangers.values() if each.client_host == crowded)
            self._make_room(oldest, "too many at the listener of brokers prove nothing")
        elif len(self._open) >= self.limits.max_connections:
            others = [each for each in self._open.values() if not each.for_brokers] or list(self._strangers.values())
            if others:
                idlest = min(others, key=lambda each: each.last_active_s)
                self._make_room(idlest, "another broker connects, and there are max.connections")

    def _make_room(self, connection: OpenConnection, reason: str) -> None:
        connection.close(reason)
        self.forget(connection)

    def logged_in(self, connection: OpenConnection) -> None:
        """Notes that the peer has proved who it is, as far as it is asked."""
        self._not_logged_in.pop(connection.connection_id, None)

    def proved(self, connection: OpenConnection) -> None:
        """Notes that the connection is another broker's."""
        self._strangers.pop(connection.connection_id, None)

    def forget(self, connection: OpenConnection) -> None:
        """Frees the resources of a closed connection."""
        if self._open.pop(connection.connection_id, None) is None:
            return
        if connection.for_brokers:
            self._strangers.pop(connection.connection_id, None)
        else:
            host = connection.client_host
            self._by_address[host] -= 1
            if not self._by_address[host]:
                del self._by_address[host]
        self._not_logged_in.pop(connection.connection_id, None)
        if connection in self._waiting_to_ask:
            self._waiting_to_ask.remove(connection)
        self.arriving.end(connection, self.loop.time())
        self._clients.closed(connection)
        self.node.connection_closed(connection.connection_id)
        self.became_quiet(connection)

    def speaks_other_protocol(self, connection: OpenConnection, protocol: str) -> None:
        """Logs the address of a peer that speaks another protocol than Kafka's to a listener. A probe comes again and
        again: each protocol has one line in some seconds."""
        if count := self._other_protocols_said.count(protocol, self.loop.time()):
            logger.warning(
                "closing a connection from %s, which speaks %s: the listener %s takes the Kafka protocol%s. "
                "%s (%d such connections so far)",
                connection.client_host,
                protocol,
                connection.session.entrance.name,
                ", without TLS" if protocol == TLS else "",
                REMEDIES[protocol],
                count,
            )

    def say_closing(self, connection: OpenConnection, reason: str, level: int = logging.INFO) -> None:
        """Logs why a connection is closed. Clients that fail right after they connect come again and again: each reason
        has one line in some seconds."""
        if logger.isEnabledFor(level) and (count := self._closings_said.count(reason, self.loop.time())):
            so_far = "" if count == 1 else f" ({count} closed so far for such a reason)"
            logger.log(level, "closing connection %s: %.500s%s", connection, reason, so_far)

    # Bounds on bytes

    def may_take_request(self, connection: OpenConnection) -> bool:
        """True if one more request of this connection may be under way; if not, `serve_on` is called when it may."""
        if self.unanswered_bytes < self.limits.max_total_bytes:
            return True
        if connection not in self._waiting_to_ask:
            self._waiting_to_ask.append(connection)
        return False

    def request_bytes_answered(self, count: int) -> None:
        self.unanswered_bytes -= count
        while self._waiting_to_ask and self.unanswered_bytes < self.limits.max_total_bytes:
            self._waiting_to_ask.popleft().serve_on()

    # Time

    @property
    def _sweep_interval_s(self) -> float:
        return min(_SWEEP_S, self._idle_check_s)

    def _sweep(self) -> None:
        now_s = self.loop.time()
        until_next_s = min(self._sweep_interval_s, self.arriving.look(now_s))
        self._sweep_timer = self.loop.call_later(until_next_s, self._sweep)
        others = (each for each in self._open.values() if not self.arriving.holds(each))
        self._half_requests.look(others, self.receive_buffers.lent_bytes, now_s)
        self.sending.buffers.relieve(now_s)
        self._close_late(now_s)
        self._close_ended()
        if now_s >= self._next_idle_check_s:
            self._next_idle_check_s = now_s + self._idle_check_s
            self._close_idle(now_s - self.limits.max_idle_s)

    def _close_late(self, now_s: float) -> None:
        """Closes connections whose peers were asked who they are and took too long. Handshakes have clocks of their
        own, which begin with their turn."""
        late = []
        for began_s, connection in self._not_logged_in.values():
            if began_s + LOG_IN_S > now_s:
                break
            if connection.session.ends_ms is not None:
                late.append(connection)
        for connection in late:
            connection.close(f"it did not log in within {LOG_IN_S:g} s")
            self._not_logged_in.pop(connection.connection_id, None)

    def _close_ended(self) -> None:
        """Closes connections that are not read and whose peers have gone: the others end with their pause."""
        for connection in [each for each in islice(self.paused.values(), LOOKED_AT_ONCE) if each.peer_has_gone]:
            connection.close("its client, over a quota, has gone")

    def _close_idle(self, since_s: float) -> None:
        for connection in [each for each in self._open.values() if each.last_active_s < since_s]:
            if not connection.waits_for_node and (connection.receiving or not connection.quiet):
                connection.close(f"idle for more than connections.max.idle.ms ({self.limits.max_idle_s * 1000:.0f})")

    # The end

    async def drain(self, timeout_s: float) -> int:
        """Takes no more requests; waits until answers are sent. Returns the number of connections with owed answers."""
        self._stopping = True
        for connection in self._open.values():
            connection.stop_serving()
        self._quiet = asyncio.Event()
        deadline_s = self.loop.time() + timeout_s
        while not all(connection.quiet for connection in self._open.values()):
            self._quiet.clear()
            try:
                await asyncio.wait_for(self._quiet.wait(), deadline_s - self.loop.time())
            except TimeoutError:
                break
        return sum(not connection.quiet for connection in self._open.values())

    def became_quiet(self, connection: OpenConnection) -> None:
        if self._quiet is not None:
            self._quiet.set()

    def close_gently(self) -> None:
        """Closes every connection once its written answers are sent."""
        for connection in list(self._open.values()):
            connection.close_after_sending()

    def close(self) -> None:
        """Closes every connection at once."""
        self._stopping = True
        self._sweep_timer.cancel()
        for connection in list(self._open.values()):
            connection.close("the broker stops", logging.DEBUG)

"""One client's connection: requests in, answers out, strictly in the order of the requests.

Requests are handed to the node as soon as they have arrived, so that many requests of one connection can wait for the
disk together. Answers may be ready in any order and leave in the order of the requests. Back-pressure works both ways:
while the peer does not take its answers, or too many bytes of requests are unanswered, nothing more is read.
"""

import asyncio
import logging
import socket
from collections import deque
from contextlib import suppress
from typing import Final, cast

from cordwood.broker.machine.loop_watch import STALL_S
from cordwood.broker.network.activity import ApiActivity, frame_bytes
from cordwood.broker.network.connections import Connections, Quotas
from cordwood.broker.network.peer_ends import has_ended
from cordwood.broker.network.plain_sender import PlainSender
from cordwood.broker.network.sending import HangUp, MakeSender, bytes_in_memory
from cordwood.model.addresses import plain_address
from cordwood.model.errors import StorageFailure
from cordwood.model.settings.listeners import ONLY_ENTRANCE, Callers, Entrance
from cordwood.node.loop.ports import Frame
from cordwood.security.sessions import Principal, Session, session_at
from cordwood.wire.apis import APIS
from cordwood.wire.encoding.bad_messages import BadRequest, OtherProtocol
from cordwood.wire.framing import FrameReader
from cordwood.wire.requests import RequestHeader, parse_header

logger = logging.getLogger("cordwood.broker")

REQUESTS_PER_TURN: Final = 64
"""A peer with thousands of tiny requests in one packet must not keep other connections waiting."""

MAX_BYTES_BEFORE_LOG_IN: Final = 512 * 1024
"""The largest request of a peer that has not said who it is, where a listener asks: Kafka's bound."""

TURN_S: Final = 0.01
"""A connection whose requests have taken this long gives the turn to other connections."""


class PendingReply:
    """The place of one answer in its connection's order; the node's `Reply`."""

    __slots__ = (
        "_connection",
        "api",
        "arrived_s",
        "connection_id",
        "frame",
        "header",
        "request_bytes",
    )

    def __init__(self, connection: "Connection", request_bytes: int, header: RequestHeader | None) -> None:
        self._connection = connection
        self.header = header
        self.connection_id = connection.connection_id
        self.request_bytes = request_bytes
        self.frame: Frame | HangUp | None = None
        self.api: ApiActivity | None = None
        """The counters of the request's API; None: no metrics."""
        self.arrived_s = 0.0

    @property
    def session(self) -> Session:
        return self._connection.session

    @property
    def api_name(self) -> str:
        api = None if self.header is None else APIS.get(self.header.api_key)
        return "unknown" if api is None else api.name

    def __str__(self) -> str:
        client = None if self.header is None else self.header.client_id
        return f"{self.api_name} of {client!r:.100} on connection {self._connection}"

    def send(self, frame: Frame) -> None:
        assert self.frame is None, "a request has one answer"
        self.frame = frame
        self._connection.answered(self)

    def send_last(self, frame: Frame, reason: str) -> None:
        self._connection.stop_serving()
        self.send(frame)
        self._connection.refuse(None, reason)

    def begin(self, session: Session) -> None:
        self._connection.begin(session)

    def hold(self) -> None:
        self._connection.holds += 1

    def release(self) -> None:
        self._connection.holds -= 1
        self._connection.serve_on()

    def count_time(self, quotas: Quotas, time_s: float) -> None:
        """Counts a time for which the loop was busy with the request."""
        if self.header is not None:
            quotas.spent(self.header, self.session, time_s * 1000)

    def pause(self, for_ms: int) -> None:
        self._connection.pause(for_ms / 1000)

    def nothing(self) -> None:
        self.send(b"")

    def hang_up(self, reason: str) -> None:
        assert self.frame is None, "a request has one answer"
        self.frame = HangUp(reason)
        self._connection.stop_serving()
        self._connection.answered(self)


def _host_of(name: object) -> str:
    """The address of a peer. Listeners for both families see IPv4 clients as ::ffff:10.0.0.1, which no rule names."""
    if not isinstance(name, tuple):
        return "local"
    host = str(name[0])
    return plain_address(host) if ":" in host else host


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self, connections: Connections, entrance: Entrance = ONLY_ENTRANCE, make_sender: MakeSender = PlainSender
    ) -> None:
        self._connections = connections
        self._make_sender = make_sender
        self.session = session_at(entrance, "")
        self._awaits_handshake = make_sender is not PlainSender
        self.for_brokers = entrance.callers is Callers.BROKERS
        self._is_brokers = False
        """True if a request on this connection has proved that another broker sent it."""
        self._claims_memory = False
        """True if the request that is arriving has, or waits for, more than an ordinary buffer."""
        self._limits = connections.limits
        self._reader = FrameReader(connections.limits.max_request_bytes, connections.receive_buffers)
        if self.session.ends_ms is not None:
            self._reader.bound = "the largest before a log-in"
            self._reader.max_request_bytes = min(MAX_BYTES_BEFORE_LOG_IN, connections.limits.max_request_bytes)
        self._unanswered: deque[PendingReply] = deque()
        self._unanswered_bytes = 0
        self._serving = True
        """False once the connection is to be closed: requests that arrive are ignored."""
        self._reading = True
        self._pump_noted = False
        self._serve_scheduled = False
        self.holds = 0
        """The number of requests that the node handles later or in steps: the next request waits for all of them."""
        self._paused_until_s = 0.0
        """The end of the pause of a client over its quota; 0: there is none."""
        self._pause_timer: asyncio.TimerHandle | None = None
        self.connection_id = 0
        self.last_received_s = 0.0
        self.client_id: str | None = None
        """The client id of the first request; None: no request has come."""
        self.requests = 0
        self.received_bytes = 0

    @property
    def has_to_prove(self) -> bool:
        return self._awaits_handshake or (self.session.ends_ms is not None and self.session.mechanism is None)

    @property
    def client_host(self) -> str:
        return self.session.host

    def begin(self, session: Session) -> None:
        """Begins another session: the peer has proved who it is."""
        self.session = session
        self._reader.bound = "socket.request.max.bytes"
        self._reader.max_request_bytes = self._limits.max_request_bytes
        self._connections.logged_in(self)

    # Calls of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._sender = self._make_sender(self._transport, self, self._connections.sending)
        name = transport.get_extra_info("peername")
        self.session = self.session._replace(host=_host_of(name))
        self.last_received_s = self._connections.loop.time()
        wait_s = self._connections.admit(self)
        if wait_s is None:
            self._serving = False
            self._transport.abort()
        elif wait_s:
            self.holds += 1
            self._stop_reading()
            self._connections.loop.call_later(wait_s, self._turn_came)

    def _turn_came(self) -> None:
        self.holds -= 1
        self.serve_on()

    def shook_hands(self, principal: Principal | None) -> None:
        """Notes the end of a TLS handshake, and the user whose certificate the peer showed, before its first
        request."""
        self._awaits_handshake = False
        if principal is not None:
            self.session = self.session._replace(principal=principal)
        if not self.has_to_prove:
            self._connections.logged_in(self)

    def pause(self, for_s: float) -> None:
        """Serves no request for so long, and reads none: its peer is over a quota."""
        until_s = self._connections.loop.time() + for_s
        if not self._serving or until_s <= self._paused_until_s:
            return
        if self._pause_timer is None:
            self.holds += 1
            self._connections.paused[self.connection_id] = self
            self._pause_timer = self._connections.loop.call_later(for_s, self._pause_over)
        self._paused_until_s = until_s

    def _pause_over(self) -> None:
        left_s = self._paused_until_s - self._connections.loop.time()
        if left_s > 0:
            self._pause_timer = self._connections.loop.call_later(left_s, self._pause_over)
            return
        self._end_pause()
        self.serve_on()

    def _end_pause(self) -> None:
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None
            self._paused_until_s = 0.0
            self.holds -= 1
            del self._connections.paused[self.connection_id]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, count: int) -> None:
        self._reader.received(count)
        self.received_bytes += count
        self.last_received_s = self._connections.loop.time()
        self._serve()

    def pause_writing(self) -> None:
        self._sender.pause_writing()

    def resume_writing(self) -> None:
        self._sender.resume_writing()

    def eof_received(self) -> bool:
        """Stops serving: clients do not half-close, so the peer is gone. `connection_lost` follows in this turn."""
        self._serving = False
        self._reader.close()
        return False

    def connection_lost(self, reason: Exception | None) -> None:
        self._serving = False
        # A process forked meanwhile may hold the socket, too: only a shutdown ends the connection for the peer.
        with suppress(OSError), self._transport.get_extra_info("socket").dup() as end:
            end.shutdown(socket.SHUT_RDWR)
        self._connections.request_bytes_answered(self._unanswered_bytes)
        self._unanswered.clear()
        self._unanswered_bytes = 0
        self._sender.close()
        self._reader.close()
        self._end_pause()
        self._connections.forget(self)

    # Requests

    def _serve(self) -> None:
        """Hands whole requests to the node, within the limits."""
        connections, reader = self._connections, self._reader
        outbox, node, activity = connections.outbox, connections.node, connections.activity
        now = connections.now()
        reply: PendingReply | None = None
        left_this_turn = REQUESTS_PER_TURN
        all_served = False
        watch, quotas, counted_s = connections.loop_watch, connections.quotas, 0.0
        began_s, began_cpu_s = watch.monotonic_s(), watch.cpu_s()
        watch.last_event_cpu_s = began_cpu_s
        outbox.cork()
        try:
            while self._serving and not all_served:
                if not self._may_serve():
                    self._stop_reading()
                    break
                if left_this_turn == 0:
                    self._stop_reading()
                    self.serve_on()
                    break
                left_this_turn -= 1
                reply = None
                frame = next(reader, None)
                if frame is None:
                    left_this_turn += 1
                    all_served = True
                    break
                if self._claims_memory:
                    self._claims_memory = False
                    connections.arriving.end(self, connections.loop.time())
                header = parse_header(frame)
                if header.sender is not None and not self._is_brokers and connections.is_broker(header):
                    self._is_brokers = True
                    connections.proved(self)
                size = len(frame)
                reply = PendingReply(self, size, header)
                self._unanswered.append(reply)
                self._unanswered_bytes += size
                connections.unanswered_bytes += size
                if activity is not None:
                    reply.api = activity.arrived(header.api_key, size)
                    reply.arrived_s = self.last_received_s
                node.handle(header, frame, reply, now)
                all_served = not reader.unread_bytes
                took_s = watch.monotonic_s() - began_s
                if quotas is not None and quotas.counts_time:
                    reply.count_time(quotas, took_s - counted_s)
                    counted_s = took_s
                if took_s >= TURN_S:
                    # Other connections have their turn before the next request of this connection.
                    self.requests -= left_this_turn
                    left_this_turn = 0
                    if took_s >= STALL_S:
                        watch.held(reply.api_name, str(reply), took_s, watch.cpu_s() - began_cpu_s)
        except OtherProtocol as fault:
            connections.speaks_other_protocol(self, fault.protocol)
            self._serving = False
            self._transport.abort()
        except BadRequest as fault:
            self.refuse(reply, str(fault))
        except Exception as failure:
            self.refuse(reply, "the broker failed on its request")
            connections.request_failed(failure)
        finally:
            # Answers leave first: the rest is done while the peer reads them.
            outbox.uncork()
            reader.release()
            self.requests += REQUESTS_PER_TURN - left_this_turn
            if self.client_id is None and reply is not None and reply.header is not None:
                self.client_id = reply.header.client_id or ""
        if all_served and self._serving:
            self._all_served()

    def _may_serve(self) -> bool:
        sender, limits, connections = self._sender, self._limits, self._connections
        if self.holds:
            return False
        if len(self._unanswered) >= limits.max_unanswered or self._unanswered_bytes >= limits.max_unanswered_bytes:
            return False
        if sender.held_bytes >= limits.max_held_bytes or len(sender.parts) >= limits.max_waiting_parts:
            sender.pump()
        if sender.blocked or sender.behind_bytes >= limits.max_held_bytes:
            return False
        return connections.unanswered_bytes < limits.max_total_bytes or connections.may_take_request(self)

    def _all_served(self) -> None:
        """Decides whether to receive more: no whole request is left in the buffer."""
        reader, connections = self._reader, self._connections
        may_receive = True
        if wanted_bytes := reader.wanted_bytes:
            self._claims_memory = True
            may_receive = connections.arriving.ask(self, wanted_bytes, connections.loop.time())
        if not may_receive or not self._may_serve():
            self._stop_reading()
        elif not self._reading:
            self._start_reading()

    def refuse(self, reply: PendingReply | None, reason: str) -> None:
        """Closes the connection after the answers that are still owed for earlier requests."""
        if reply is None or reply.frame is not None:
            reply = PendingReply(self, 0, None)
            self._unanswered.append(reply)
        reply.hang_up(reason)

    def stop_serving(self) -> None:
        """Serves no further request. Answers to earlier requests are still sent."""
        self._serving = False
        self._stop_reading()

    def serve_on(self) -> None:
        """Serves the requests in the buffer soon: the reason to hold the connection back may be gone."""
        if not self._reading and self._serving and not self._serve_scheduled:
            self._serve_scheduled = True
            self._connections.loop.call_soon(self._serve_again)

    def _serve_again(self) -> None:
        self._serve_scheduled = False
        self._serve()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _start_reading(self) -> None:
        self._reading = True
        # The time in which the broker did not read does not count as the peer's silence.
        self.last_received_s = self._connections.loop.time()
        self._transport.resume_reading()

    # Answers

    def answered(self, answered: PendingReply) -> None:
        """Passes answers that are next in order to the sender."""
        unanswered, sender = self._unanswered, self._sender
        if unanswered and unanswered[0] is not answered:
            assert answered.frame is not None
            sender.behind_bytes += bytes_in_memory(answered.frame)
            sender.note_waiting()
            return
        freed = 0
        while unanswered and (frame := unanswered[0].frame) is not None:
            reply = unanswered.popleft()
            freed += reply.request_bytes
            if reply is not answered:
                sender.behind_bytes -= bytes_in_memory(frame)
            if reply.api is not None:
                reply.api.durations.observe(self._connections.loop.time() - reply.arrived_s)
                reply.api.response_bytes += frame_bytes(frame)
            sender.add(frame)
            if not self._pump_noted:
                self._pump_noted = True
                self._connections.outbox.has_ready(self)
        if freed:
            self._unanswered_bytes -= freed
            self._connections.request_bytes_answered(freed)
            if not self._reading:
                self.serve_on()

    def pump(self) -> None:
        self._pump_noted = False
        if not self._transport.is_closing():
            self._sender.pump()

    def all_sent(self) -> None:
        if not self._reading:
            self.serve_on()
        if not self._unanswered:
            self._connections.became_quiet(self)

    def hung_up(self, reason: str) -> None:
        self._connections.say_closing(self, reason)
        self._transport.close()

    def sending_failed(self, reason: str) -> None:
        self._connections.say_closing(self, f"its response could not be sent: {reason}")
        self._serving = False
        self._transport.abort()

    def records_unreadable(self, path: str, failure: StorageFailure) -> None:
        self._connections.records_unreadable(path, failure)

    def too_slow(self, reason: str) -> None:
        self.close(reason, logging.WARNING)

    # Standing

    @property
    def quiet(self) -> bool:
        """True if every answer has been sent."""
        return not self._unanswered and not self._sender.busy

    @property
    def arrived_bytes(self) -> int:
        """The bytes that have arrived and belong to no request yet."""
        return self._reader.unread_bytes

    @property
    def paused(self) -> bool:
        """True if the peer is over a quota, and nothing is read from it."""
        return self._pause_timer is not None

    @property
    def peer_has_gone(self) -> bool:
        """True if the peer has closed its end, which a connection that is not read does not hear of."""
        return has_ended(self._transport.get_extra_info("socket"))

    @property
    def receiving(self) -> bool:
        return self._reading

    @property
    def last_active_s(self) -> float:
        return max(self.last_received_s, self._sender.last_progress_s)

    @property
    def waits_for_node(self) -> bool:
        """True if the node has to act next: requests are under way, and the peer has taken all earlier answers."""
        return bool(self._unanswered) and not self._sender.busy

    def close(self, reason: str, level: int = logging.INFO) -> None:
        """Closes now, without sending the answers that are still owed."""
        self._serving = False
        self._connections.say_closing(self, reason, level)
        self._transport.abort()

    def close_after_sending(self) -> None:
        """Closes when the transport has sent its buffer; at once if the peer does not take its answers."""
        self._serving = False
        if self._sender.parts:
            self._transport.abort()
        else:
            self._transport.close()

    def __str__(self) -> str:
        return f"{self.connection_id} from {self.session.host}"

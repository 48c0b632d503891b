"""Stands before a node while faults are set, and lets requests meet the faults. Without faults there is no front.

While a fault on Fetch depends on partitions, there are no fetch sessions: a fetch in a session does not name all its
partitions. An existing session is not found any more, as after a restart, and no new one begins.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from cordwood.embedded.error_answers import named_partitions, refusal
from cordwood.embedded.faults import Effect, Fault, Faults
from cordwood.model.errors import ErrorCode
from cordwood.model.moment import Moment
from cordwood.wire.apis import ApiKey
from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.requests import RequestHeader, decode_request, encode_response

if TYPE_CHECKING:
    from cordwood.broker.server import Server
    from cordwood.node.loop.ports import Frame, Reply
    from cordwood.security.sessions import Session

_INT32: Final = Struct(">i")
_NO_SESSION: Final = -1
_REASON: Final = "a fault was set"


class FaultFront:
    """The front of one server, used only in its loop."""

    def __init__(self, server: Server, faults: Faults) -> None:
        self._server = server
        self._node = server.node
        self._faults = faults

    def refresh(self) -> None:
        """Puts the front before the node if faults are set, and removes it if none are."""
        self._server.answer_through(self if self._faults.any_set else None)

    def connection_closed(self, connection_id: int) -> None:
        self._node.connection_closed(connection_id)

    def handle(self, header: RequestHeader, frame: memoryview, reply: Reply, now: Moment) -> None:
        try:
            request = decode_request(header, frame) if self._faults.on(header.api_key) else None
        except BadRequest:
            request = None  # the node answers with the error
        if request is None:
            self._node.handle(header, frame, reply, now)
            return
        if header.api_key == ApiKey.FETCH and any(fault.needs_partitions for fault in self._faults.on(ApiKey.FETCH)):
            if request.session_id and request.session_epoch > 0:
                self._refuse(header, request, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, reply)
                return
            frame = _without_session(header, frame)
        fault = self._faults.take(header, lambda: named_partitions(request, self._node.image.topic_name))
        self.refresh()
        if fault is None:
            self._node.handle(header, frame, reply, now)
        else:
            self._meet(fault, header, frame, request, reply, now)

    def _meet(
        self, fault: Fault, header: RequestHeader, frame: memoryview, request: Any, reply: Reply, now: Moment
    ) -> None:
        match fault.effect:
            case Effect.FAIL:
                self._refuse(header, request, fault.code, reply)
            case Effect.DROP_REQUEST:
                reply.hang_up(_REASON)
            case Effect.DROP_ANSWER:
                self._node.handle(header, frame, _LostReply(reply), now)
            case Effect.DELAY:
                self._node.handle(header, frame, _LateReply(reply, self._server, fault.delay_s), now)

    def _refuse(self, header: RequestHeader, request: Any, code: int, reply: Reply) -> None:
        if header.api_key == ApiKey.PRODUCE and request.acks == 0:
            reply.hang_up(_REASON)
            return
        values = refusal(header.api_key, request, code)
        if header.api_key == ApiKey.METADATA:
            # A client that gets no broker in the answer would have no broker to ask again.
            values["brokers"] = [
                endpoint._asdict()
                for endpoint in self._node.told_brokers.endpoints(reply.session.entrance.name, reply.connection_id)
            ]
            values["cluster_id"] = self._node.image.cluster_id
            values["controller_id"] = self._node.image.controller_id
        reply.send(encode_response(header, values))


def _without_session(header: RequestHeader, frame: memoryview) -> memoryview:
    """The same fetch without a session."""
    if header.api_version < 7:
        return frame
    # The session's epoch follows the replica (until version 14), three numbers, the isolation level and the session's
    # id.
    epoch_position = header.body_start + (21 if header.api_version <= 14 else 17)
    changed = bytearray(frame)
    _INT32.pack_into(changed, epoch_position, _NO_SESSION)
    return memoryview(changed)


class _LostReply:
    """Carries the request out, and ends the connection instead of answering."""

    def __init__(self, reply: Reply) -> None:
        self.session = reply.session
        self.connection_id = reply.connection_id
        self._reply = reply

    def hold(self) -> None:
        self._reply.hold()

    def release(self) -> None:
        self._reply.release()

    def send(self, frame: Frame) -> None:
        self._reply.hang_up(_REASON)

    def send_last(self, frame: Frame, reason: str) -> None:
        self._reply.hang_up(reason)

    def pause(self, for_ms: int) -> None:
        self._reply.pause(for_ms)

    def begin(self, session: Session) -> None:
        self._reply.begin(session)

    def nothing(self) -> None:
        self._reply.hang_up(_REASON)

    def hang_up(self, reason: str) -> None:
        self._reply.hang_up(reason)


class _LateReply:
    """Sends the node's answer later."""

    def __init__(self, reply: Reply, server: Server, delay_s: float) -> None:
        self.session = reply.session
        self.connection_id = reply.connection_id
        self._reply = reply
        self._server = server
        self._delay_s = delay_s

    def hold(self) -> None:
        self._reply.hold()

    def release(self) -> None:
        self._reply.release()

    def send(self, frame: Frame) -> None:
        self._server.later(self._delay_s, lambda: self._reply.send(frame))

    def send_last(self, frame: Frame, reason: str) -> None:
        self._server.later(self._delay_s, lambda: self._reply.send_last(frame, reason))

    def pause(self, for_ms: int) -> None:
        self._reply.pause(for_ms)

    def begin(self, session: Session) -> None:
        self._reply.begin(session)

    def nothing(self) -> None:
        self._reply.nothing()

    def hang_up(self, reason: str) -> None:
        self._reply.hang_up(reason)

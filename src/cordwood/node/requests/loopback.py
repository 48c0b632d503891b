"""Requests of a broker to itself: through the same handlers and codecs as those of others, without a socket."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from cordwood.log.reading.lookup import LogSlice
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.peers import (
    Done,
    PeerAnswer,
    PeerFailed,
    PeerFailure,
    PeerOutcome,
    PeerRequest,
    Peers,
    common_version,
    unsupported,
)
from cordwood.node.loop.ports import Frame, Reply
from cordwood.node.loop.timers import Timer
from cordwood.security.sessions import OF_THIS_BROKER, Session
from cordwood.wire.asking import decode_response, encode_request, request_start
from cordwood.wire.requests import RequestHeader, parse_header

CONNECTION_ID = -1
"""Takes the place of a connection's id; ids of connections are above 0."""
_CLIENT_ID = b"cordwood-loopback"
_SIZE_BYTES = 4


Handle = Callable[[RequestHeader, memoryview, Reply, Moment], None]


class _Sent(NamedTuple):
    request: PeerRequest
    version: int
    reply: "_LoopbackReply"


class PeersAndSelf:
    """All brokers: requests to this broker stay in the process, others go to `others`."""

    def __init__(self, broker_id: int, myself: Peers, others: Peers) -> None:
        self._broker_id = broker_id
        self._myself = myself
        self._others = others

    def send(self, request: PeerRequest, done: Done) -> None:
        (self._myself if request.broker_id == self._broker_id else self._others).send(request, done)


class Loopback:
    """The peer that is this broker itself. Requests are handled one after the other, as on one connection."""

    def __init__(
        self,
        handle: Handle,
        served: Callable[[int], tuple[int, int] | None],
        loop: Loop,
    ) -> None:
        """`served` gives the versions of an API that the node serves."""
        self._handle = handle
        self._served = served
        self._loop = loop
        self._waiting: deque[_Sent] = deque()
        self._calls: list[Callable[[], None]] = []
        self._holds = 0

    def send(self, request: PeerRequest, done: Done) -> None:
        served = self._served(request.api_key)
        version = common_version(request.versions, served)
        if version is None:
            self.end(done, unsupported(request, served))
            return
        self._waiting.append(_Sent(request, version, _LoopbackReply(self, request, version, done)))
        if len(self._waiting) == 1:
            self._loop.after(0, self._serve)

    def call(self, work: Callable[[], None]) -> None:
        """Does the work in a later event of the node, without codecs and without a timeout."""
        self._calls.append(work)
        if len(self._calls) == 1:
            self._loop.after(0, self._do_calls)

    def _do_calls(self, now: Moment) -> None:
        calls, self._calls = self._calls, []
        for work in calls:
            work()

    def _serve(self, now: Moment) -> None:
        while self._waiting and not self._holds:
            request, version, reply = self._waiting.popleft()
            if reply.ended:
                continue
            body = encode_request(request.api_key, version, request.values)
            start = request_start(request.api_key, version, 0, _CLIENT_ID, len(body))
            frame = memoryview(start + body)[_SIZE_BYTES:]
            reply.handled = True
            self._handle(parse_header(frame), frame, reply, now)

    def hold(self, more: int) -> None:
        self._holds += more
        if not self._holds and self._waiting:
            self._loop.after(0, self._serve)

    def end(self, done: Done, outcome: PeerOutcome) -> None:
        self._loop.after(0, partial(done, outcome))

    def timer(self, delay_ms: int, event: Callable[[Moment], None]) -> Timer:
        return self._loop.after(delay_ms, event)


class _LoopbackReply:
    """The node's `Reply`. An answer that comes after the timeout is dropped."""

    connection_id = CONNECTION_ID
    session = OF_THIS_BROKER

    def __init__(self, loopback: Loopback, request: PeerRequest, version: int, done: Done) -> None:
        self._loopback = loopback
        self._request = request
        self._version = version
        self._done = done
        self.ended = False
        self.handled = False
        self._timer = loopback.timer(request.timeout_ms, self._timed_out)

    def hold(self) -> None:
        self._loopback.hold(1)

    def release(self) -> None:
        self._loopback.hold(-1)

    def send(self, frame: Frame) -> None:
        if not self.ended:
            content = memoryview(_content(frame))[_SIZE_BYTES:]
            self._end(PeerAnswer(self._version, decode_response(self._request.api_key, self._version, content)))

    def send_last(self, frame: Frame, reason: str) -> None:
        self.send(frame)

    def pause(self, for_ms: int) -> None:
        raise AssertionError("a broker has no quota")

    def begin(self, session: Session) -> None:
        raise AssertionError("a broker does not prove to itself who it is")

    def nothing(self) -> None:
        self.hang_up("the request has no answer")

    def hang_up(self, reason: str) -> None:
        if not self.ended:
            self._end(PeerFailed(PeerFailure.DISCONNECTED, f"this broker hung up: {reason}", perhaps_handled=True))

    def _timed_out(self, now: Moment) -> None:
        if not self.ended:
            text = f"this broker did not answer itself within {self._request.timeout_ms} ms"
            self._end(PeerFailed(PeerFailure.TIMED_OUT, text, perhaps_handled=self.handled))

    def _end(self, outcome: PeerOutcome) -> None:
        self.ended = True
        self._timer.cancel()
        self._loopback.end(self._done, outcome)


def _content(frame: Frame) -> bytes:
    if isinstance(frame, bytes):
        return frame
    parts = [part.file.read(part.position, part.length) if isinstance(part, LogSlice) else part for part in frame]
    return b"".join(parts)

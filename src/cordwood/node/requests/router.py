"""The router of requests: finds the handler of each, and hands it a `Request`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.ports import Frame, Reply
from cordwood.node.loop.turns import Steps
from cordwood.node.quotas.client_quotas import ClientQuotas
from cordwood.node.requests.access import Access
from cordwood.node.requests.catching_up import CatchingUp
from cordwood.node.requests.parked import ParkedRequests
from cordwood.node.requests.proven_brokers import is_proven
from cordwood.node.requests.request import Request, Served
from cordwood.node.requests.wide_requests import NARROW_BYTES, WideRequests
from cordwood.security.sessions import Session
from cordwood.wire.api_versions import encode_unsupported_version
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.requests import RequestHeader
from cordwood.wire.widths import MAX_BYTES_WITHOUT_RECORDS

if TYPE_CHECKING:
    from cordwood.security.trail.port import Trail

_SASL = frozenset({int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)})


def may_come_first(key: int, session: Session) -> bool:
    """True if a peer may ask this that has not proved who it is, or has to prove it again. Which versions there are is
    a question for the beginning alone, as in Apache Kafka."""
    return key in _SASL or (key == ApiKey.API_VERSIONS and session.mechanism is None)


class Router:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        access: Access,
        quotas: ClientQuotas,
        parked: ParkedRequests,
        catching_up: CatchingUp,
        wide_requests: WideRequests,
        served: Mapping[int, Served],
        trail: Trail | None = None,
    ) -> None:
        self._loop = loop
        self._image = image
        self._access = access
        self._quotas = quotas
        self._catching_up = catching_up
        self._wide_requests = wide_requests
        self._parked = parked
        self._served = served
        self._trail = trail

    def handle(self, header: RequestHeader, frame: memoryview, reply: Reply, now: Moment) -> None:
        """Answers the request, now or later. The frame is not kept. Between `reply.hold` and `reply.release` the driver
        brings no other request of the connection."""
        loop = self._loop
        loop.now = now
        loop.turns.stepped_for = reply
        if reply.connection_id in self._parked.by_connection:
            self._parked.make_way(reply.connection_id, header.api_key, now)
        # Most sessions have no end.
        if reply.session.ends_ms is not None and self._has_ended(header, reply, now):
            return
        served = self._served.get(header.api_key)
        if served is None or not served.api.min_version <= header.api_version <= served.api.max_version:
            if header.api_key == ApiKey.API_VERSIONS:
                reply.send(encode_unsupported_version(header.correlation_id))
            else:
                reply.hang_up(f"API key {header.api_key} version {header.api_version} is not served here")
            return
        if len(frame) > MAX_BYTES_WITHOUT_RECORDS and header.api_key != ApiKey.PRODUCE:
            reply.hang_up(f"a request without records has at most {MAX_BYTES_WITHOUT_RECORDS} bytes")
            return
        send = self._quotas.arrived(header, len(frame), reply) if self._quotas.on else None
        if header.image_revision > self._image.revision and self._catching_up.has_room(header, reply, len(frame)):
            self._catching_up.wait(header, reply, len(frame), self._late(served, header, frame, reply, send))
            return
        wide = len(frame) > NARROW_BYTES and self._is_wide(header)
        if wide and not self._wide_requests.has_room(len(frame)):
            self._wide_requests.wait(reply, len(frame), self._late(served, header, frame, reply, send))
            return
        try:
            judge = self._access.judge(header, reply.session)
            steps = served.handle(Request(header, frame, reply, now, loop.turns, judge, send))
        except BadRequest as problem:
            reply.hang_up(problem.message)
            return
        if steps is not None:
            loop.turns.begin(reply, self._wide_requests.counted(len(frame), steps) if wide else steps)

    def _has_ended(self, header: RequestHeader, reply: Reply, now: Moment) -> bool:
        """True if the peer has to log in before it asks this: it is hung up on."""
        session = reply.session
        if session.ends_ms is None or not session.is_over(now.boot_ms) or may_come_first(header.api_key, session):
            return False
        when = "before the peer has logged in" if session.mechanism is None else "after its session has ended"
        reason = f"{APIS[header.api_key].name} came {when}"
        if self._trail is not None:
            self._trail.not_logged_in(session, session.mechanism or "none", "", reason)
        reply.hang_up(reason)
        return True

    def _is_wide(self, header: RequestHeader) -> bool:
        """True if the request counts among those whose bytes are bounded: it is decoded into much more memory. A
        Produce is bounded by its batches."""
        return header.api_key != ApiKey.PRODUCE and not is_proven(self._image, header)

    def _late(
        self,
        served: Served,
        header: RequestHeader,
        frame: memoryview,
        reply: Reply,
        send: Callable[[Frame], None] | None,
    ) -> Steps:
        """Handles a request that waited for the metadata, or for other wide requests."""
        # Offsets are written into batches in place: the copy is writable, as the frame is.
        return self._handled(served, header, memoryview(bytearray(frame)), reply, send)

    def _handled(
        self,
        served: Served,
        header: RequestHeader,
        frame: memoryview,
        reply: Reply,
        send: Callable[[Frame], None] | None,
    ) -> Steps:
        if self._has_ended(header, reply, self._loop.now):  # while the request waited
            return
        judge = self._access.judge(header, reply.session)
        steps = served.handle(Request(header, frame, reply, self._loop.now, self._loop.turns, judge, send))
        if steps is not None:
            yield from steps

"""Connections to other brokers: the node's port `Peers` over asyncio, up to four connections for each peer.

Answers come in the order of requests, and requests wait at the peer: a fetch for records, a marker for replicas, a
verification for the coordinator's log, a repair for the disk. Each kind has its connection (`Lane`), so that none waits
behind another.

A connection is made when the first request needs it: TLS, the log-in, the question for versions (`opening_links.py`).
Before its session ends the broker logs in again, while nothing else is under way on the connection. Answers come in the
order of requests, so a request that is not answered in time closes the connection: all others would wait
behind it. A peer that cannot be reached is tried again after a pause that grows; requests wait for the next attempt,
and fail with it.

A connection to a broker of the cluster is kept (`keep`): its peers notice at once when the broker's process ends. A
refused connection at the address of a registration is evidence that no process is there, and is reported. A peer that
fails in TLS or in the log-in is none: it may be alive and well, and is named in the log and in `troubles`.

A connection belongs to one registration of its peer. When the registration ends, the connection is dropped and its
requests fail: a process that is stopped, or a machine that is gone, would keep them until their timeouts.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from cordwood.broker.network.opening_links import IN_PLAIN_TEXT, LinkOpening, LogInFailed, Security
from cordwood.broker.network.peer_link import PeerLink
from cordwood.broker.network.peer_troubles import PeerTroubles
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.back_off import BackOff
from cordwood.model.moment import Moment
from cordwood.node.loop.peers import (
    Done,
    PeerAnswer,
    PeerFailed,
    PeerFailure,
    PeerOutcome,
    PeerRequest,
    common_version,
    unsupported,
)
from cordwood.wire.apis import ApiKey
from cordwood.wire.asking import (
    BadResponse,
    correlation_id_of,
    decode_response,
    decode_response_in_place,
    encode_request,
    request_start,
)
from cordwood.wire.requests import Sender

_MAX_CORRELATION_ID: Final = 2**31 - 1

AddressOf = Callable[[int], tuple[str, int] | None]
"""Host and port of a registered broker; None: no such broker is registered."""


def registered_at(image: ClusterImage, listener: str, *, elsewhere: bool = True) -> AddressOf:
    """Finds brokers by their registrations, at the listener that brokers use among themselves. `elsewhere`: a broker
    without that listener, while a rolling restart gives the cluster one, is found at its first listener: all of them
    take keys."""

    def address_of(broker_id: int) -> tuple[str, int] | None:
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.endpoints:
            return None
        endpoint = broker.endpoint(listener) or (broker.endpoints[0] if elsewhere else None)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    return address_of


class Lane(Enum):
    """The connections to one peer."""

    MAIN = "markers, and the connection that is kept"
    FETCHES = "fetches of followers"
    LONG_FETCHES = "fetches of partitions at rest"
    VERIFICATIONS = "questions to coordinators of transactions"
    REPAIRS = "requests that read a disk"


_LANES: Final = {
    ApiKey.FETCH: Lane.FETCHES,
    ApiKey.ADD_PARTITIONS_TO_TXN: Lane.VERIFICATIONS,
    ApiKey.SOUND_BATCHES: Lane.REPAIRS,
}


class Observer(Protocol):
    """Learns of brokers that are, or are not, at the addresses of their registrations."""

    def refused(self, broker_id: int, broker_epoch: int) -> None: ...

    def reached(self, broker_id: int, broker_epoch: int) -> None: ...


CONNECT_BACK_OFF: Final = BackOff(50, 2_000)


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Bounds for each peer."""

    requests: int = 1000
    """Requests without an answer, sent or not."""
    request_bytes: int = 64 * 1024 * 1024
    """Bytes of sent requests without an answer. One request may be larger."""
    answer_bytes: int = 256 * 1024 * 1024
    connect_timeout_ms: int = 5_000
    back_off: BackOff = CONNECT_BACK_OFF
    """The pauses between attempts to connect."""


class PeerConnections:
    """The brokers besides this one. Belongs to one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker_id: int,
        address_of: AddressOf,
        run: Callable[[Callable[[], None]], object],
        now: Callable[[], Moment],
        limits: PeerLimits | None = None,
        *,
        image_revision: Callable[[], int],
        key: Callable[[], int],
        security: Security = IN_PLAIN_TEXT,
        troubles: PeerTroubles | None = None,
    ) -> None:
        """`run` runs an event on the node. `image_revision` gives the revision of the metadata that this broker knows:
        a peer that lags behind catches up before it answers. `key` gives the key of this broker's registration."""
        self.loop = loop
        self.client_id = f"cordwood-broker-{broker_id}".encode()
        self.address_of = address_of
        self.limits = limits or PeerLimits()
        self.image_revision = image_revision
        self.troubles = troubles or PeerTroubles()
        self.opening = LinkOpening(loop, self.client_id, lambda: self.sender, security, self.limits.answer_bytes)
        self._broker_id = broker_id
        self._key = key
        self._run = run
        self._now = now
        self._lanes: dict[Lane, dict[int, _Peer]] = {lane: {} for lane in Lane}
        self._closed = False
        self._observer: Observer | None = None
        self._epoch_of: Callable[[int], int] = lambda broker_id: -1

    def observe(self, observer: Observer, epoch_of: Callable[[int], int]) -> None:
        """Reports refused connections from now on. `epoch_of` gives the broker epoch of a registered broker, and -1 for
        any other."""
        self._observer, self._epoch_of = observer, epoch_of
        for peers in self._lanes.values():
            for broker_id, peer in peers.items():
                peer.epoch = epoch_of(broker_id)

    def keep(self, broker_ids: Collection[int]) -> None:
        """Keeps one connection to each of these brokers, and to no others; called when registrations have changed.
        Drops connections to brokers whose registrations have ended."""
        if self._closed:
            return
        for peers in self._lanes.values():
            for broker_id, peer in list(peers.items()):
                if peer.epoch != self._epoch_of(broker_id):
                    del peers[broker_id]
                    self.troubles.ended(broker_id)
                    peer.close("its registration ended")
        kept = self._lanes[Lane.MAIN]
        for broker_id in broker_ids:
            if broker_id not in kept:
                kept[broker_id] = _Peer(self, broker_id, self._epoch_of(broker_id))
        for broker_id, peer in list(kept.items()):
            peer.keep(broker_id in broker_ids)

    @property
    def sender(self) -> Sender:
        """The sender in requests of this broker."""
        return Sender(self._broker_id, self._key())

    def attempt_of(self, broker_id: int) -> Callable[[bool], None]:
        """A callback for the outcome of an attempt to connect that begins now. The callback gets True if the peer was
        reached."""
        epoch = self._epoch_of(broker_id)

        def outcome(reached: bool) -> None:
            if self._observer is not None:
                (self._observer.reached if reached else self._observer.refused)(broker_id, epoch)

        return outcome

    def send(self, request: PeerRequest, done: Done) -> None:
        lane = Lane.LONG_FETCHES if request.waits_long else _LANES.get(request.api_key, Lane.MAIN)
        peers = self._lanes[lane]
        peer = peers.get(request.broker_id)
        if peer is None:
            if self.address_of(request.broker_id) is None:
                text = f"broker {request.broker_id} is not registered"
                self.finish(done, PeerFailed(PeerFailure.UNKNOWN_BROKER, text))
                return
            peer = peers[request.broker_id] = _Peer(self, request.broker_id, self._epoch_of(request.broker_id))
        peer.send(request, done)

    def finish(self, done: Done, outcome: PeerOutcome) -> None:
        """Brings an outcome to the node, as a separate event."""
        self.loop.call_soon(self._run, lambda: done(outcome, self._now()))

    def forget(self, broker_id: int, peer: "_Peer") -> None:
        for peers in self._lanes.values():
            if peers.get(broker_id) is peer:
                del peers[broker_id]

    def close(self) -> None:
        """Closes all connections; requests without an answer fail."""
        self._closed = True
        for peers in self._lanes.values():
            for peer in list(peers.values()):
                peer.close("this broker stops")
            peers.clear()


class _Outgoing:
    """One request until its outcome."""

    __slots__ = ("correlation_id", "done", "request", "size", "timer", "version")

    def __init__(self, request: PeerRequest, done: Done, timer: asyncio.TimerHandle | None) -> None:
        self.request = request
        self.done = done
        self.timer = timer
        self.version = -1
        self.correlation_id = -1
        self.size = 0


class _Peer:
    """One peer in one registration: a connection, requests that wait for it, and requests that wait for an answer."""

    def __init__(self, connections: PeerConnections, broker_id: int, epoch: int) -> None:
        self._connections = connections
        self._limits = connections.limits
        self._broker_id = broker_id
        self.epoch = epoch
        """The broker epoch of the peer's registration."""
        self._waiting: deque[_Outgoing] = deque()
        self._sent: deque[_Outgoing] = deque()
        self._sent_bytes = 0
        self._link: PeerLink | None = None
        """The connection, once its versions are known."""
        self._versions: dict[int, tuple[int, int]] = {}
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        """Failures since the last connection."""
        self._last_correlation_id = 0
        self._kept = False
        self._closed = False
        self._renewal: asyncio.TimerHandle | None = None
        """The next log-in on this connection."""
        self._renewing: asyncio.Task[None] | None = None
        """A log-in on this connection: requests wait until it is done."""
        self._quiet: asyncio.Future[None] | None = None
        """Done when no request is without an answer any more."""

    def keep(self, kept: bool) -> None:
        """Keeps the connection, also without requests."""
        if kept and not self._kept:
            # A broker that registered anew is tried at once.
            self._failures = 0
        self._kept = kept
        self._connect_if_needed()

    def _connect_if_needed(self) -> None:
        if (self._waiting or self._kept) and self._link is None and self._connecting is None and not self._closed:
            self._connecting = self._connections.loop.create_task(self._connect())

    def send(self, request: PeerRequest, done: Done) -> None:
        outgoing = _Outgoing(request, done, None)
        if len(self._waiting) + len(self._sent) >= self._limits.requests:
            self._fail(outgoing, PeerFailure.OVERLOADED, f"{self._limits.requests} requests have no answer yet")
            return
        outgoing.timer = self._connections.loop.call_later(request.timeout_ms / 1000, self._timed_out, outgoing)
        if self._link is not None and self._renewing is None:
            self._write(self._link, outgoing)
            return
        self._waiting.append(outgoing)
        self._connect_if_needed()

    def close(self, why: str) -> None:
        """Drops the connection; requests without an answer fail."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        self._forget_log_in()
        if self._link is not None:
            self._link.abort()
        self._fail_all(self._waiting, PeerFailure.NO_CONNECTION, why)
        self._fail_all(self._sent, PeerFailure.DISCONNECTED, why)

    # Connecting

    async def _connect(self) -> None:
        try:
            while (self._waiting or self._kept) and self._link is None:
                await asyncio.sleep(self._limits.back_off.pause_ms(self._failures) / 1000)
                await self._attempt()
        finally:
            self._connecting = None

    async def _attempt(self) -> None:
        """Connects once. If that fails, all requests that wait fail."""
        address = self._connections.address_of(self._broker_id)
        if address is None:
            self._kept = False
            self._fail_all(self._waiting, PeerFailure.UNKNOWN_BROKER, f"broker {self._broker_id} is not registered")
            self._connections.forget(self._broker_id, self)
            return
        host, port = address
        connections = self._connections
        tell = connections.attempt_of(self._broker_id)
        try:
            async with asyncio.timeout(self._limits.connect_timeout_ms / 1000):
                opened = await connections.opening.open(self, host, port)
        except (OSError, BadResponse, LogInFailed) as reason:
            self._failures += 1
            if is_refusal := _is_refusal(reason):
                tell(False)
            why = str(reason) or f"none within {self._limits.connect_timeout_ms} ms"
            silent = is_refusal or isinstance(reason, BadResponse | TimeoutError)
            if isinstance(reason, LogInFailed):
                connections.troubles.log_in_failed(self._broker_id, f"{host}:{port}", why)
            elif connections.opening.speaks_tls and not silent:
                connections.troubles.tls_failed(self._broker_id, f"{host}:{port}", why)
            self._fail_all(self._waiting, PeerFailure.NO_CONNECTION, f"no connection to {host}:{port}: {why}")
            return
        self._failures = 0
        self._versions = opened.versions
        self._link = opened.link
        connections.troubles.ended(self._broker_id)
        tell(True)
        self._renew_at(opened.renew_s)
        self._write_waiting(opened.link)

    def _write_waiting(self, link: PeerLink) -> None:
        waiting, self._waiting = self._waiting, deque()
        for outgoing in waiting:
            self._write(link, outgoing)

    # Logging in again

    def _renew_at(self, renew_s: float | None) -> None:
        if renew_s is not None:
            self._renewal = self._connections.loop.call_at(renew_s, self._begin_renewal)

    def _begin_renewal(self) -> None:
        if self._link is not None:
            self._renewing = self._connections.loop.create_task(self._renew(self._link))

    async def _renew(self, link: PeerLink) -> None:
        """Logs in again once nothing is under way: answers come in the order of requests."""
        if self._sent:
            self._quiet = self._connections.loop.create_future()
            await self._quiet
        try:
            async with asyncio.timeout(self._limits.connect_timeout_ms / 1000):
                renew_s = await self._connections.opening.log_in(link)
        except (OSError, BadResponse, LogInFailed) as reason:
            # The next connection tells what is wrong.
            self._renewing = None
            self._break(link, f"the log-in was not renewed: {reason}")
            return
        self._renewing = None
        self._renew_at(renew_s)
        self._write_waiting(link)

    def _look_if_quiet(self) -> None:
        if self._quiet is not None and not self._sent:
            self._quiet.set_result(None)
            self._quiet = None

    def _forget_log_in(self) -> None:
        """The connection is gone."""
        if self._renewal is not None:
            self._renewal.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
        self._renewal = self._renewing = self._quiet = None

    # Requests and answers

    def _write(self, link: PeerLink, outgoing: _Outgoing) -> None:
        request = outgoing.request
        served = self._versions.get(request.api_key)
        version = common_version(request.versions, served)
        if version is None:
            self._finish(outgoing, unsupported(request, served))
            return
        body = encode_request(request.api_key, version, request.values)
        if self._sent and self._sent_bytes + len(body) > self._limits.request_bytes:
            self._fail(outgoing, PeerFailure.OVERLOADED, f"{self._sent_bytes} bytes of requests have no answer yet")
            return
        outgoing.version, outgoing.size = version, len(body)
        outgoing.correlation_id = self._next_correlation_id()
        self._sent.append(outgoing)
        self._sent_bytes += len(body)
        connections = self._connections
        start = request_start(
            request.api_key,
            version,
            outgoing.correlation_id,
            connections.client_id,
            len(body),
            connections.image_revision(),
            connections.sender,
        )
        link.write(start + body)

    def _next_correlation_id(self) -> int:
        self._last_correlation_id = self._last_correlation_id % _MAX_CORRELATION_ID + 1
        return self._last_correlation_id

    def answered(self, link: PeerLink, frame: bytes | memoryview) -> None:
        """Takes an answer. If the frame is a view, its memory is not used again while a part of it is referenced."""
        if link is not self._link:
            return
        try:
            if not self._sent or correlation_id_of(frame) != self._sent[0].correlation_id:
                raise BadResponse("an answer came that belongs to no request")
            outgoing = self._sent[0]
            key, version = outgoing.request.api_key, outgoing.version
            if isinstance(frame, memoryview):
                body = decode_response_in_place(key, version, frame)
            else:
                body = decode_response(key, version, frame)
        except BadResponse as reason:
            self._break(link, str(reason))
            return
        self._sent.popleft()
        self._sent_bytes -= outgoing.size
        self._finish(outgoing, PeerAnswer(outgoing.version, body))
        self._look_if_quiet()

    def lost(self, link: PeerLink, reason: str) -> None:
        """Notes that the connection is gone. New requests are sent on a new one."""
        if link is self._link:
            self._link = None
            self._sent_bytes = 0
            self._forget_log_in()
            self._fail_all(self._sent, PeerFailure.DISCONNECTED, f"the connection broke: {reason}")
            self._connect_if_needed()

    def _break(self, link: PeerLink, reason: str) -> None:
        link.abort()
        self._failures += 1
        self.lost(link, reason)

    def _timed_out(self, outgoing: _Outgoing) -> None:
        text = f"no answer within {outgoing.request.timeout_ms} ms"
        if outgoing in self._waiting:
            self._waiting.remove(outgoing)
            self._fail(outgoing, PeerFailure.TIMED_OUT, text)
        elif outgoing in self._sent:
            self._sent.remove(outgoing)
            self._fail(outgoing, PeerFailure.TIMED_OUT, text)
            if self._link is not None:
                self._break(self._link, "another request was not answered in time")

    def _fail_all(self, outgoing: deque[_Outgoing], reason: PeerFailure, text: str) -> None:
        while outgoing:
            self._fail(outgoing.popleft(), reason, text)

    def _fail(self, outgoing: _Outgoing, reason: PeerFailure, text: str) -> None:
        text = f"broker {self._broker_id}: {text}"
        self._finish(outgoing, PeerFailed(reason, text, perhaps_handled=outgoing.correlation_id >= 0))

    def _finish(self, outgoing: _Outgoing, outcome: PeerOutcome) -> None:
        if outgoing.timer is not None:
            outgoing.timer.cancel()
        self._connections.finish(outgoing.done, outcome)


def _is_refusal(reason: Exception) -> bool:
    """True if no process listens at any of the addresses of a host."""
    if isinstance(reason, ConnectionRefusedError):
        return True
    # A host with several addresses: the event loop puts the reasons of all attempts into one text.
    several, refusal = str(reason), f"[Errno {errno.ECONNREFUSED}]"
    return several.startswith("Multiple exceptions") and several.count("[Errno") == several.count(refusal)

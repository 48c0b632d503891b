"""Holds clients to their quotas: counts what each one uses, and says for how long a connection is not read.

A request over its quota is carried out, and answered at once: the answer tells the time for which its client is held
back, and meanwhile nothing more is read from the connection (KIP-219). Versions of clients make no difference. Brokers
have no quotas. Without any quota the router asks `on`, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from cordwood.log.reading.lookup import LogSlice
from cordwood.model.quotas import Entity, Named, QuotaKey, holding
from cordwood.node.quotas.address_quotas import AddressQuotas
from cordwood.node.quotas.allowance import Allowance
from cordwood.node.quotas.allowances import Allowances
from cordwood.node.quotas.throttle_times import with_throttle_time
from cordwood.node.quotas.throttled import Throttled
from cordwood.security.sessions import THIS_BROKER
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.ports import Frame, Reply
    from cordwood.security.sessions import Session
    from cordwood.wire.requests import RequestHeader

UNBOUNDED: Final = 2**31 - 1

MOST_KEPT: Final = 10_000
"""Names whose quotas are remembered."""

_SASL: Final = frozenset({int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)})


class Held(NamedTuple):
    """The allowances of one client; None: no quota holds."""

    produce: Allowance | None
    fetch: Allowance | None
    time: Allowance | None
    """In milliseconds of the loop."""


NOTHING_HOLDS: Final = Held(None, None, None)


class ClientQuotas:
    def __init__(self, loop: Loop, image: ClusterImage, is_broker: Callable[[RequestHeader], bool]) -> None:
        """`is_broker` tells whether a request proves that a broker sent it."""
        settings = image.static_settings
        self._loop = loop
        self._image = image
        self._is_broker = is_broker
        self._window_ms = settings.quota_window_size_seconds * 1000
        self._shared_by = settings.quota_shared_by
        self.on = False
        """True if there is any quota of users or client ids."""
        self.counts_time = False
        """True if there is any quota of the loop's time."""
        self.addresses = AddressQuotas(image)
        self.throttled: dict[QuotaKey, Throttled] = {
            **{key: Throttled() for key in OF_CLIENTS},
            QuotaKey.CONNECTION_CREATION_RATE: self.addresses.throttled,
        }
        self._held: dict[tuple[str, str], Held] = {}
        """By user and client id."""
        burst_ms = (settings.quota_window_num - 1) * self._window_ms
        self._allowances: Allowances[tuple[QuotaKey, str, str], tuple[QuotaKey, Entity]] = Allowances(
            burst_ms, self._held.clear
        )
        """By kind, and by the user and the client id that share an allowance; crowds by kind and entity."""
        self.image_changed()

    def image_changed(self) -> None:
        """Takes over the quotas of the image. What clients have used stays counted."""
        self.addresses.image_changed()
        self._held.clear()
        of_clients = [quotas for entity, quotas in self._image.quotas.by_entity.items() if entity[0].of is not Named.IP]
        self.on = bool(of_clients)
        self.counts_time = any(QuotaKey.REQUEST_PERCENTAGE in quotas for quotas in of_clients)
        if not self.on:
            self._allowances.clear()

    def arrived(self, header: RequestHeader, size: int, reply: Reply) -> Callable[[Frame], None] | None:
        """Counts a request that has arrived. Returns the function that sends its answer; None: `reply.send`."""
        held = self._held_of(header, reply.session)
        now_ms = self._loop.now.boot_ms
        throttle_ms, key = 0, QuotaKey.REQUEST_PERCENTAGE
        if held.time is not None:
            # As with Kafka: one window at most. The client is judged by the time of its earlier requests.
            throttle_ms = min(held.time.debt_ms(now_ms), self._window_ms)
        if header.api_key == ApiKey.PRODUCE and held.produce is not None:
            for_bytes_ms = held.produce.use(size, now_ms)
            if for_bytes_ms > throttle_ms:
                throttle_ms, key = for_bytes_ms, QuotaKey.PRODUCER_BYTE_RATE
        if throttle_ms:
            self._hold_back(reply, key, throttle_ms)
        if header.api_key == ApiKey.FETCH and held.fetch is not None:
            return partial(self._send_records, header, reply, held.fetch, throttle_ms)
        if throttle_ms:
            return lambda frame: reply.send(with_throttle_time(header, frame, throttle_ms))
        return None

    def most_bytes(self, header: RequestHeader, session: Session) -> int:
        """The most bytes of records for one answer to this client: records that are never read cost nothing."""
        fetch = self._held_of(header, session).fetch
        return UNBOUNDED if fetch is None else fetch.next_use(self._window_ms, self._loop.now.boot_ms)

    def spent(self, header: RequestHeader, session: Session, time_ms: float) -> None:
        """Counts the time for which the loop was busy with a request."""
        time = self._held_of(header, session).time
        if time is not None:
            time.use(time_ms, self._loop.now.boot_ms)

    def _send_records(
        self, header: RequestHeader, reply: Reply, fetch: Allowance, throttle_ms: int, frame: Frame
    ) -> None:
        now_ms = self._loop.now.boot_ms
        if (for_bytes_ms := fetch.use(_length(frame), now_ms)) > throttle_ms:
            throttle_ms = for_bytes_ms
            self._hold_back(reply, QuotaKey.CONSUMER_BYTE_RATE, throttle_ms)
        reply.send(with_throttle_time(header, frame, throttle_ms) if throttle_ms else frame)

    def _hold_back(self, reply: Reply, key: QuotaKey, throttle_ms: int) -> None:
        self.throttled[key].count(throttle_ms)
        reply.pause(throttle_ms)

    def _held_of(self, header: RequestHeader, session: Session) -> Held:
        if header.api_key in _SASL or (session.entrance.asks is not None and session.mechanism is None):
            # The peer has not said yet who it is.
            return NOTHING_HOLDS
        if session.principal is THIS_BROKER or (header.sender is not None and self._is_broker(header)):
            return NOTHING_HOLDS
        client = session.principal.name, header.client_id or ""
        return self._held.get(client) or self._find(*client)

    def _find(self, user: str, client_id: str) -> Held:
        found = Held(*(self._allowance(key, user, client_id) for key in OF_CLIENTS))
        if len(self._held) >= MOST_KEPT:
            self._held.clear()
        if not self._allowances.crowded:
            self._held[user, client_id] = found
        return found

    def _allowance(self, key: QuotaKey, user: str, client_id: str) -> Allowance | None:
        held = holding(self._image.quotas.by_entity, user, client_id, key)
        if held is None:
            return None
        per_s = held.value / self._shared_by
        if key is QuotaKey.REQUEST_PERCENTAGE:
            per_s *= 1000 / 100
        return self._allowances.of((key, *held.shared_by), (key, held.entity), per_s / 1000, self._loop.now.boot_ms)


OF_CLIENTS: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
"""The quotas of users and client ids, in the order of `Held`."""


def _length(frame: Frame) -> int:
    if isinstance(frame, bytes):
        return len(frame)
    length = 0
    for part in frame:
        length += part.length if isinstance(part, LogSlice) else len(part)
    return length

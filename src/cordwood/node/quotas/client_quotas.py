"""Holds clients to their quotas: counts what each one uses, and says for how long a connection is not read.

A request over its quota is carried out, and answered at once: the answer tells the time for which its client is held
back, and meanwhile nothing more is read from the connection (KIP-219). Versions of clients make no difference. Brokers
have no quotas. Without any quota the router asks `on`, and nothing else happens.

Names are chosen by clients: what is kept of them is bounded. An allowance that is full again holds no news and is
dropped; while there is no room for more, newcomers under one entity share one allowance, and take nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from cordwood.log.reading.lookup import LogSlice
from cordwood.model.quotas import Entity, QuotaKey, holding
from cordwood.node.quotas.allowance import Allowance
from cordwood.node.quotas.throttle_times import with_throttle_time
from cordwood.security.sessions import THIS_BROKER
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.ports import Frame, Reply
    from cordwood.security.sessions import Session
    from cordwood.wire.requests import RequestHeader

MOST_ALLOWANCES: Final = 10_000
"""At some 400 bytes each: 4 MB."""
UNBOUNDED: Final = 2**31 - 1

MOST_KEPT: Final = 10_000
"""Names whose quotas are remembered."""
LOOK_AGAIN_MS: Final = 1_000
"""A look for allowances that can go takes some milliseconds."""

_SASL: Final = frozenset({int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)})


class Held(NamedTuple):
    """The allowances of one client; None: no quota holds."""

    produce: Allowance | None
    fetch: Allowance | None


NOTHING_HOLDS: Final = Held(None, None)


@dataclass
class Throttled:
    """How often clients were held back by quotas of one kind, and for how long in all."""

    times: int = 0
    ms: int = 0


class ClientQuotas:
    def __init__(self, loop: Loop, image: ClusterImage, is_broker: Callable[[RequestHeader], bool]) -> None:
        """`is_broker` tells whether a request proves that a broker sent it."""
        settings = image.static_settings
        self._loop = loop
        self._image = image
        self._is_broker = is_broker
        self._window_ms = settings.quota_window_size_seconds * 1000
        self._burst_ms = (settings.quota_window_num - 1) * self._window_ms
        self._shared_by = settings.quota_shared_by
        self.on = False
        """True if there is any quota of users or client ids."""
        self.throttled: dict[QuotaKey, Throttled] = {key: Throttled() for key in QuotaKey}
        self._held: dict[tuple[str, str], Held] = {}
        """By user and client id."""
        self._allowances: dict[tuple[QuotaKey, str, str], Allowance] = {}
        """By kind, and by the user and the client id that share it."""
        self._crowds: dict[tuple[QuotaKey, Entity], Allowance] = {}
        """The allowances of clients for which there is no room, by kind and entity."""
        self._look_from_ms = 0
        self.image_changed()

    def image_changed(self) -> None:
        """Takes over the quotas of the image. What clients have used stays counted."""
        self._held.clear()
        self._crowds.clear()
        self.on = bool(self._image.quotas.by_entity)
        if not self.on:
            self._allowances.clear()

    def arrived(self, header: RequestHeader, size: int, reply: Reply) -> Callable[[Frame], None] | None:
        """Counts a request that has arrived. Returns the function that sends its answer; None: `reply.send`."""
        held = self._held_of(header, reply.session)
        now_ms = self._loop.now.boot_ms
        if header.api_key == ApiKey.FETCH and held.fetch is not None:
            return partial(self._send_records, header, reply, held.fetch)
        if header.api_key == ApiKey.PRODUCE and held.produce is not None:
            held.produce.use(size, now_ms)
            if throttle_ms := held.produce.debt_ms(now_ms):
                self._hold_back(reply, QuotaKey.PRODUCER_BYTE_RATE, throttle_ms)
                return lambda frame: reply.send(with_throttle_time(header, frame, throttle_ms))
        return None

    def most_bytes(self, header: RequestHeader, session: Session) -> int:
        """The most bytes of records for one answer to this client: records that are never read cost nothing."""
        fetch = self._held_of(header, session).fetch
        return UNBOUNDED if fetch is None else fetch.next_use(self._window_ms, self._loop.now.boot_ms)

    def _send_records(self, header: RequestHeader, reply: Reply, fetch: Allowance, frame: Frame) -> None:
        now_ms = self._loop.now.boot_ms
        fetch.use(_length(frame), now_ms)
        if throttle_ms := fetch.debt_ms(now_ms):
            self._hold_back(reply, QuotaKey.CONSUMER_BYTE_RATE, throttle_ms)
            frame = with_throttle_time(header, frame, throttle_ms)
        reply.send(frame)

    def _hold_back(self, reply: Reply, key: QuotaKey, throttle_ms: int) -> None:
        throttled = self.throttled[key]
        throttled.times += 1
        throttled.ms += throttle_ms
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
        found = Held(
            self._allowance(QuotaKey.PRODUCER_BYTE_RATE, user, client_id),
            self._allowance(QuotaKey.CONSUMER_BYTE_RATE, user, client_id),
        )
        if len(self._held) >= MOST_KEPT:
            self._held.clear()
        if not self._crowds:
            self._held[user, client_id] = found
        return found

    def _allowance(self, key: QuotaKey, user: str, client_id: str) -> Allowance | None:
        held = holding(self._image.quotas.by_entity, user, client_id, key)
        if held is None:
            return None
        per_ms = held.value / 1000 / self._shared_by
        place = (key, *held.shared_by)
        found = self._allowances.get(place)
        if found is None and self._has_room():
            found = self._allowances[place] = Allowance(per_ms, self._burst_ms, self._loop.now.boot_ms)
        elif found is None:
            crowd = (key, held.entity)
            found = self._crowds.get(crowd)
            if found is None:
                found = self._crowds[crowd] = Allowance(per_ms, self._burst_ms, self._loop.now.boot_ms)
        found.per_ms = per_ms
        return found

    def _has_room(self) -> bool:
        now_ms = self._loop.now.boot_ms
        crowded = self._crowds or len(self._allowances) >= MOST_ALLOWANCES
        if crowded and now_ms >= self._look_from_ms:
            self._look_from_ms = now_ms + LOOK_AGAIN_MS
            self._allowances = {place: each for place, each in self._allowances.items() if not each.is_full(now_ms)}
            self._crowds = {place: each for place, each in self._crowds.items() if not each.is_full(now_ms)}
            # Clients that are remembered would go on with allowances that are dropped.
            self._held.clear()
        return len(self._allowances) < MOST_ALLOWANCES


def _length(frame: Frame) -> int:
    if isinstance(frame, bytes):
        return len(frame)
    return sum(part.length if isinstance(part, LogSlice) else len(part) for part in frame)

"""Holds addresses to their quotas of new connections. A connection over its quota waits for its turn before it is read;
one that would wait for too long is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cordwood.model.addresses import plain_address
from cordwood.model.quotas import Entity, Named, Part, QuotaKey
from cordwood.node.quotas.allowances import Allowances
from cordwood.node.quotas.throttled import Throttled

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage

LONGEST_WAIT_MS: Final = 10_000
"""As for `max.connection.creation.rate`: a client gives up soon afterwards."""

_DEFAULT: Final[Entity] = (Part(Named.IP, None),)


class AddressQuotas:
    def __init__(self, image: ClusterImage) -> None:
        settings = image.static_settings
        self._image = image
        self._shared_by = settings.quota_shared_by
        self._rates: dict[str | None, float] = {}
        """Connections in a second, by address; None: the default."""
        burst_ms = (settings.quota_window_num - 1) * settings.quota_window_size_seconds * 1000
        self._allowances: Allowances[str, None] = Allowances(burst_ms, lambda: None)
        self.throttled = Throttled()
        self.image_changed()

    def image_changed(self) -> None:
        self._rates = {}
        for entity, quotas in self._image.quotas.by_entity.items():
            rate = quotas.get(QuotaKey.CONNECTION_CREATION_RATE)
            if rate is not None:
                self._rates[None if entity == _DEFAULT else plain_address(entity[0].name or "")] = rate
        if not self._rates:
            self._allowances.clear()

    def wait_ms(self, host: str, now_ms: int) -> int | None:
        """How long a new connection from this address waits before it is read; None: too long, and it is refused."""
        if not self._rates:
            return 0
        address = plain_address(host)
        rate = self._rates.get(address, self._rates.get(None))
        if rate is None:
            return 0
        allowance = self._allowances.of(address, None, rate / self._shared_by / 1000, now_ms)
        if allowance.debt_ms(now_ms) > LONGEST_WAIT_MS:
            return None
        allowance.use(1, now_ms)
        if wait_ms := allowance.debt_ms(now_ms):
            self.throttled.count(wait_ms)
        return wait_ms

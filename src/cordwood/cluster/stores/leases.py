"""The leases of a store, and their ends. Keys are the store's own affair."""

import time
from dataclasses import dataclass

from cordwood.cluster.stores.interface import LeaseEnded

PAUSE_MS = 1000
"""A store that looks at its leases this much later than planned was itself stopped, and its clients with it."""


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@dataclass(slots=True)
class _Lease:
    ttl_ms: int
    deadline_ms: int


class Leases:
    """Leases by id, with deadlines on the boot clock. Ids rise from `first` on."""

    def __init__(self, first: int = 1, *, forgives_pauses: bool = False) -> None:
        """`forgives_pauses`: the store runs in the process of its clients. While that process is stopped, or the
        machine sleeps, no client can renew: the leases begin anew when the process goes on."""
        self._next = first
        self._forgives_pauses = forgives_pauses
        self._leases: dict[int, _Lease] = {}

    @property
    def next_deadline_ms(self) -> int | None:
        return min((lease.deadline_ms for lease in self._leases.values()), default=None)

    def grant(self, ttl_ms: int, boot_ms: int) -> int:
        assert ttl_ms > 0
        lease, self._next = self._next, self._next + 1
        self._leases[lease] = _Lease(ttl_ms, boot_ms + ttl_ms)
        return lease

    def check(self, lease: int) -> None:
        """Raises LeaseEnded if the lease has ended."""
        if lease not in self._leases:
            raise LeaseEnded(f"lease {lease} has ended")

    def renew(self, lease: int, boot_ms: int) -> None:
        """Renews the lease. Raises LeaseEnded."""
        self.check(lease)
        granted = self._leases[lease]
        granted.deadline_ms = boot_ms + granted.ttl_ms

    def due(self, boot_ms: int) -> list[int]:
        """The leases whose time is over, for the store to `end`."""
        deadline_ms = self.next_deadline_ms
        if self._forgives_pauses and deadline_ms is not None and boot_ms >= deadline_ms + PAUSE_MS:
            for lease in self._leases:
                self.renew(lease, boot_ms)
        return sorted(lease for lease, granted in self._leases.items() if granted.deadline_ms <= boot_ms)

    def end(self, lease: int) -> None:
        self._leases.pop(lease, None)

    def end_all(self) -> None:
        self._leases.clear()

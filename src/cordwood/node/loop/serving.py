"""The authority of this broker to serve as the leader of partitions, and its registration: broker epoch and key.

Another broker may be elected as soon as the lease of this broker's registration has ended. So a leader serves for two
thirds of the lease's time, counted on the boot clock from the sending of the last successful renewal: its clock may be
slower than the store's, and a process that was stopped finds the time expired when it goes on. A broker whose row
vanished from the metadata stops at that event.

A broker whose store is not shared serves without an end: no other broker can be elected.
"""

from collections.abc import Callable

FOREVER_MS = 2**62


class Serving:
    """The authority of one broker to serve. `until_ms` is read on every request."""

    __slots__ = ("_lease_ms", "broker_epoch", "key", "on_registered", "registered_here", "until_ms")

    def __init__(self, lease_ms: int | None = None, broker_epoch: int = -1) -> None:
        """`lease_ms`: the time of the lease of the broker's registration; None: the store is not shared."""
        self._lease_ms = lease_ms
        self.broker_epoch = broker_epoch
        """The epoch of this process's registration."""
        self.key = 0
        """The key of this registration, which proves the sender of a request to other brokers."""
        self.until_ms = FOREVER_MS if lease_ms is None else 0
        """The end of the authority that the lease gives, on the boot clock."""
        self.registered_here = True
        """True if this broker's row exists, by its knowledge. Without the row no follower may vouch for the broker."""
        self.on_registered: Callable[[], object] = lambda: None
        """Called after each registration."""

    def registered(self, broker_epoch: int, key: int, sent_boot_ms: int) -> None:
        """Notes that the broker has registered, in a new epoch and with a new key, under a lease that was asked for at
        `sent_boot_ms`."""
        assert broker_epoch > self.broker_epoch
        self.broker_epoch, self.key = broker_epoch, key
        self.registered_here = True
        self.lease_renewed(sent_boot_ms)
        self.on_registered()

    def lease_renewed(self, sent_boot_ms: int) -> None:
        """Notes that the renewal sent at `sent_boot_ms` succeeded."""
        if self._lease_ms is not None and self.registered_here:
            self.until_ms = max(self.until_ms, sent_boot_ms + self.lasts_ms)

    @property
    def shared(self) -> bool:
        """True if other brokers share the metadata store."""
        return self._lease_ms is not None

    @property
    def lasts_ms(self) -> int:
        """The duration of the authority that a renewal gives."""
        return FOREVER_MS if self._lease_ms is None else self._lease_ms * 2 // 3

    def lost(self) -> None:
        """Notes that the row of the broker's registration is gone: the lease ended or was revoked."""
        if self._lease_ms is not None:
            self.registered_here = False
            self.until_ms = 0

"""Brokers that this one reaches and cannot speak with: TLS or the log-in fails. Each is logged once for each reason."""

import logging
from typing import Final

from cordwood.node.requests.census import UnreachedPeer

logger = logging.getLogger("cordwood.broker")

_CURE_OF_TLS: Final = (
    "ssl.keystore.location and ssl.truststore.location of the listener between brokers, here and there"
)
LONGEST: Final = 1_000


class PeerTroubles:
    def __init__(self) -> None:
        self._reasons: dict[int, str] = {}

    def tls_failed(self, broker_id: int, address: str, why: str) -> None:
        self._note(broker_id, f"no TLS connection to broker {broker_id} at {address}: {why} ({_CURE_OF_TLS})")

    def log_in_failed(self, broker_id: int, address: str, why: str) -> None:
        self._note(broker_id, f"no log-in at broker {broker_id} at {address}: {why}")

    def _note(self, broker_id: int, text: str) -> None:
        text = "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST])
        if self._reasons.get(broker_id) != text:
            self._reasons[broker_id] = text
            logger.warning("%s", text)

    def ended(self, broker_id: int) -> None:
        """Notes that the broker was reached, or is not registered any more."""
        self._reasons.pop(broker_id, None)

    def unreached(self) -> list[UnreachedPeer]:
        """The brokers in trouble, by their ids."""
        return [UnreachedPeer(broker_id, text) for broker_id, text in sorted(self._reasons.items())]

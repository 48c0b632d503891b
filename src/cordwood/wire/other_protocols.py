"""Recognises peers that speak another protocol than Kafka's by their first four bytes, which would mean a request of
hundreds of megabytes."""

from typing import Final

TLS: Final = "TLS"
HTTP: Final = "HTTP"
SSH: Final = "SSH"
_HANDSHAKE: Final = b"\x16\x03"
"""The first bytes of a TLS connection: a handshake, of any version since SSL 3."""
_BEGINNINGS: Final = {
    **dict.fromkeys((b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI "), HTTP),
    b"SSH-": SSH,
}
REMEDIES: Final = {
    TLS: "Set security.protocol=PLAINTEXT at the client",
    HTTP: "Metrics and health are served over HTTP, at metrics.listener",
    SSH: "Look for a scan of ports, or a wrong address",
}


def other_protocol(prefix: bytes) -> str | None:
    """The protocol that begins with these four bytes; None if it is not known."""
    return TLS if prefix.startswith(_HANDSHAKE) else _BEGINNINGS.get(prefix)

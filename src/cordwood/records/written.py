"""Bytes of a record that still carry the values they encode.

A coordinator writes a record and replays it at once. Decoding it again would take longer than writing it, so the values
travel with the bytes. Records from a log are plain bytes, and are decoded.
"""

from typing import Any


class Written(bytes):
    """Equal to the plain bytes in every way, and so to be told apart only by who asks for `says`."""

    says: Any

    def __new__(cls, data: bytes, says: Any) -> "Written":
        """`says` must be what reading these bytes would give, and must never change."""
        written = bytes.__new__(cls, data)
        written.says = says
        return written

"""Bytes of a record that still carry the values they encode.

A coordinator writes a record and replays it at once. Decoding it again would take longer than writing it, so the values
travel with the bytes. Records from a log are plain bytes, and are decoded.
"""

from typing import Any


class Written(bytes):
    """Bytes with the value that they encode, in `says`. They are equal to plain bytes in every other way."""

    says: Any

    def __new__(cls, data: bytes, says: Any) -> "Written":
        """`says` must be what reading these bytes would give, and must never change."""
        written = bytes.__new__(cls, data)
        written.says = says
        return written

"""Bytes of a record that still know what they say.

A coordinator writes a record and replays it at once. What it wrote it need not read: to read it back took longer than
to write it. From a log come plain bytes, and they are read.
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

"""The primitive fields of Kafka's coordinator records, as they stand in __consumer_offsets.

Keys are never flexible; values are flexible from a version of their schema on: lengths are then varints plus one and
every struct ends in tagged fields.
"""

import struct


class UnreadableRecord(ValueError):
    """No version of its format explains a record."""


class FieldReader:
    """Reads one field after the other. Raises UnreadableRecord if the bytes end early or make no sense."""

    __slots__ = ("_at", "_data", "flexible")

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._at = 0
        self.flexible = flexible

    def int8(self) -> int:
        return self._fixed(">b", 1)

    def int16(self) -> int:
        return self._fixed(">h", 2)

    def int32(self) -> int:
        return self._fixed(">i", 4)

    def int64(self) -> int:
        return self._fixed(">q", 8)

    def int32s(self) -> tuple[int, ...]:
        """An array of int32."""
        count = self.count()
        start = self._at
        self._at = start + 4 * count
        if self._at > len(self._data):
            raise UnreadableRecord(f"{count} numbers do not fit at {start} in {len(self._data)} bytes")
        return struct.unpack_from(f">{count}i", self._data, start)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise UnreadableRecord("a string is null although it is required")
        return text

    def nullable_string(self) -> str | None:
        raw = self._taken(self._uvarint() - 1 if self.flexible else self.int16())
        try:
            return None if raw is None else raw.decode()
        except UnicodeDecodeError as error:
            raise UnreadableRecord(f"a string is garbled: {error}") from None

    def octets(self) -> bytes:
        return self._taken(self._uvarint() - 1 if self.flexible else self.int32()) or b""

    def count(self) -> int:
        """The number of elements of an array. Each element takes at least a byte, so a larger number is refused."""
        count = self._uvarint() - 1 if self.flexible else self.int32()
        if count > len(self._data) - self._at:
            raise UnreadableRecord(f"an array of {count} elements does not fit into {len(self._data)} bytes")
        return max(count, 0)

    def raw(self, size: int) -> bytes:
        return self._taken(size) or b""

    def end_of_struct(self) -> None:
        if self.flexible:
            self.tagged()

    def tagged(self) -> dict[int, bytes]:
        return {self._uvarint(): self._taken(self._uvarint()) or b"" for _ in range(self._uvarint())}

    def _fixed(self, layout: str, size: int) -> int:
        if self._at + size > len(self._data):
            raise UnreadableRecord(f"a record of {len(self._data)} bytes is cut short")
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += size
        return int(value)

    def _taken(self, length: int) -> bytes | None:
        if length < 0:
            return None
        start = self._at
        if start + length > len(self._data):
            raise UnreadableRecord(f"{length} bytes do not fit at {start} in {len(self._data)}")
        self._at = start + length
        return self._data[start : self._at]

    def _uvarint(self) -> int:
        value, shift = 0, 0
        while True:
            if self._at >= len(self._data) or shift > 28:
                raise UnreadableRecord("a length is cut short or too long")
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    raw = text.encode()
    return (uvarint(len(raw) + 1) if len(raw) > 0x7E else bytes((len(raw) + 1,))) + raw


def one_tag(raw: bytes) -> bytes:
    """The end of a struct with the tagged field 0 alone."""
    return b"\1\0" + uvarint(len(raw)) + raw


def two_tags(first: bytes, tag: int, second: bytes) -> bytes:
    """The end of a struct with the tagged field 0 and another one."""
    return b"\2\0" + uvarint(len(first)) + first + uvarint(tag) + uvarint(len(second)) + second


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def nullable_string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else string(text)


def octets(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw

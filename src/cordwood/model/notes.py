"""Small files with a checksum: the CRC-32 of the content in hex, a line feed, the content."""

import zlib


def encode_note(content: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(content) + content


def decode_note(data: bytes) -> bytes | None:
    """The content; None if the checksum is not that of the content."""
    checksum, _, content = data.partition(b"\n")
    return content if checksum == b"%08x" % zlib.crc32(content) else None

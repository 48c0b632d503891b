"""The sizes of partitions' logs on a broker's disk: DescribeLogDirs, which librdkafka does not offer.

The four fields of the request, in version 1, are written out here: the schema library costs seconds to import.
"""

import socket
import struct
from collections.abc import Collection

_API_KEY, _API_VERSION, _CORRELATION_ID = 35, 1, 1
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024


class SizesUnknown(Exception):
    """The broker did not give its sizes: it lacks the API, wants authentication, or cannot be reached."""


def log_sizes(host: str, port: int, topic: str, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
    """Bytes on the broker's disk, for each partition with a replica there. Raises SizesUnknown."""
    request = _request(topic, partitions)
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 4 <= size <= _MAX_RESPONSE_BYTES:
                raise SizesUnknown(f"{host}:{port} answered with a frame of {size} bytes")
            response = _receive(connection, size)
    except OSError as error:
        raise SizesUnknown(f"{host}:{port}: {error}") from error
    try:
        return _sizes_in(response, topic)
    except struct.error as error:
        raise SizesUnknown(f"{host}:{port} answered with something else than DescribeLogDirs") from error


def _request(topic: str, partitions: Collection[int]) -> bytes:
    client_id = b"cordwood-cli"
    name = topic.encode()
    ordered = sorted(partitions)
    return (
        struct.pack(f">hhih{len(client_id)}s", _API_KEY, _API_VERSION, _CORRELATION_ID, len(client_id), client_id)
        + struct.pack(f">ih{len(name)}s", 1, len(name), name)
        + struct.pack(f">i{len(ordered)}i", len(ordered), *ordered)
    )


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise SizesUnknown("the broker closed the connection: it does not offer DescribeLogDirs")
        received += part
    return bytes(received)


def _sizes_in(response: bytes, topic: str) -> dict[int, int]:
    sizes: dict[int, int] = {}
    reader = _Reader(response)
    reader.take(">ii")  # correlation id, throttle time
    for _directory in range(reader.take(">i")[0]):
        reader.take(">h")  # an error code: the partitions of a directory with an error are missing below
        reader.text()
        for _topic in range(reader.take(">i")[0]):
            name = reader.text()
            for _ in range(reader.take(">i")[0]):
                partition, size_bytes, _offset_lag, is_future = reader.take(">iqq?")
                if name == topic and not is_future:
                    sizes[partition] = size_bytes
    return sizes


class _Reader:
    """Takes fields off a response, from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, layout: str) -> tuple[int, ...]:
        fields = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return fields

    def text(self) -> str:
        (length,) = self.take(">h")
        (text,) = struct.unpack_from(f">{length}s", self._data, self._position)
        self._position += length
        return str(text, "utf-8")

"""Ways to spoil a frame. Deterministic by the given random source."""

import struct
from random import Random

_EXTREMES = [0, 1, -1, 2**31 - 1, -(2**31), 0x7FFF, -0x8000, 100_000_000]


def mutated(frame: bytes, random: Random) -> bytes:
    """The frame with one to four mutations."""
    data = bytearray(frame)
    for _ in range(random.randint(1, 4)):
        if not data:
            break
        random.choice(_MUTATIONS)(data, random)
    return bytes(data)


def _flip_bit(data: bytearray, random: Random) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _change_byte(data: bytearray, random: Random) -> None:
    data[random.randrange(len(data))] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])


def _put_integer(data: bytearray, random: Random) -> None:
    if len(data) >= 4:
        struct.pack_into(">i", data, random.randrange(len(data) - 3), random.choice(_EXTREMES))


def _put_long(data: bytearray, random: Random) -> None:
    if len(data) >= 8:
        value = random.choice([0, -1, 2**63 - 1, -(2**63), 2**40])
        struct.pack_into(">q", data, random.randrange(len(data) - 7), value)


def _long_varint(data: bytearray, random: Random) -> None:
    place = random.randrange(len(data))
    data[place : place + 1] = bytes([0xFF]) * random.randint(4, 10) + b"\x0f"


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data)) :]


def _remove(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data))
    del data[start : start + random.randint(1, 16)]


def _extend(data: bytearray, random: Random) -> None:
    data += random.randbytes(random.randint(1, 64))


def _repeat(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data))
    piece = data[start : start + random.randint(1, 40)]
    data[start:start] = piece * random.randint(1, 20)


def _other_version(data: bytearray, random: Random) -> None:
    if len(data) >= 4:
        struct.pack_into(">h", data, 2, random.choice([random.randrange(20), -1, 99, 0x7FFF]))


def _other_api(data: bytearray, random: Random) -> None:
    if len(data) >= 2:
        struct.pack_into(">h", data, 0, random.choice([random.randrange(95), -1, 0x7FFF]))


_MUTATIONS = [
    _flip_bit,
    _flip_bit,
    _change_byte,
    _put_integer,
    _put_integer,
    _put_long,
    _long_varint,
    _cut,
    _remove,
    _extend,
    _repeat,
    _other_version,
    _other_api,
]

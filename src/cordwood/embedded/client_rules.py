"""A rule that all Kafka clients follow: the partition of a key.

Keys are hashed by murmur2 with the Java client's seed, which librdkafka (`murmur2_random`), kafka-python, aiokafka and
franz-go share.
"""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    length = len(data)
    mixed = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        word = (word ^ (word >> 24)) * _M & _MASK
        mixed = (mixed * _M & _MASK) ^ word
    if whole != length:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    mixed = (mixed ^ (mixed >> 13)) * _M & _MASK
    return mixed ^ (mixed >> 15)


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of a key, as the Java client chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count

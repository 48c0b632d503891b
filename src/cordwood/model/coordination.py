"""The partition of an internal topic for a group or a transactional id."""

from functools import lru_cache

from cordwood.model.families import is_reserved

MAX_NAME_BYTES = 1024
"""The longest name of groups, members, instances and transactional ids: names are kept in memory, the hash below reads
every letter in the loop, and keys of records take at most 32,767 bytes."""


def is_too_long(name: str) -> bool:
    return len(name) * 4 > MAX_NAME_BYTES and len(name.encode()) > MAX_NAME_BYTES


@lru_cache(maxsize=4096)
def coordinating_partition(key: str, partition_count: int) -> int:
    """The hash of Java's String.hashCode, without its sign, modulo the partitions: the choice that every Kafka tool
    expects."""
    code = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % partition_count


def transaction_partition(transactional_id: str, partition_count: int) -> int:
    """The partition of a transactional id, chosen like a group's, except that a family and all its slots share a
    partition: one append decides about all slots."""
    if is_reserved(transactional_id):
        family, _, _ = transactional_id.partition("/")
        return coordinating_partition(family, partition_count)
    return coordinating_partition(transactional_id, partition_count)

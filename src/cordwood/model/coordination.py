"""Which partition of an internal topic a group or a transactional id lives in."""


def coordinating_partition(key: str, partition_count: int) -> int:
    """Java's String.hashCode of the key without its sign, modulo the partitions: as every Kafka tool expects."""
    code = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % partition_count

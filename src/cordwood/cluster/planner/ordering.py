"""Checks changes of a topic against the declared scope of its order."""

from cordwood.model.errors import ErrorCode, ProtocolError


def check_scope(name: str, scope: str, partition_count: int, code: ErrorCode = ErrorCode.INVALID_PARTITIONS) -> None:
    """Refuses a scope that a topic of this many partitions cannot keep; `code` blames the request's part."""
    if scope == "global" and partition_count != 1:
        raise ProtocolError(
            code,
            f"Topic '{name}' has ordering.scope=global, which needs exactly one partition: between partitions there is "
            f"no order. {partition_count} partitions would be ordered per partition only.",
        )


def check_partition_growth(name: str, scope: str, partition_count: int) -> None:
    """Refuses new partitions where they would break the topic's scope of order."""
    check_scope(name, scope, partition_count)
    if scope == "key":
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION,
            f"Topic '{name}' has ordering.scope=key: its readers rely on the order of each key's records. With more "
            "partitions keys move to other partitions, and a key's new records may be read before its old ones. To "
            "add partitions all the same, first set ordering.scope=partition on the topic.",
        )

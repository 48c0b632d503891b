"""A plan: the transactions of a change, and the commit that makes the change visible."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cordwood.cluster.stores.interface import (
    MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES,
    Compare,
    Operation,
    operation_bytes,
)

_ROOM_FOR_COMPARES_BYTES = 64 * 1024
"""Room in every transaction for its comparisons and the writer's authority."""


class StoreTxn(NamedTuple):
    compares: tuple[Compare, ...]
    operations: tuple[Operation, ...]


class Plan(NamedTuple):
    """The transactions of a change: preparations, in any order or together; then, if all succeeded, the commit.

    Before the commit no reader sees any part of the change, so an interruption leaves the old state, and after the
    commit the new state. If a comparison fails, the caller runs `undo`, reads again, and plans again.
    """

    preparations: tuple[StoreTxn, ...]
    commit: StoreTxn
    undo: tuple[StoreTxn, ...] = ()


def chunks(operations: Iterable[Operation]) -> Iterator[tuple[Operation, ...]]:
    """Groups the operations into as few transactions as the limits allow."""
    group: list[Operation] = []
    size = 0
    for operation in operations:
        operation_size = operation_bytes(operation)
        if group and (
            len(group) == MAX_OPERATIONS or size + operation_size > MAX_TRANSACTION_BYTES - _ROOM_FOR_COMPARES_BYTES
        ):
            yield tuple(group)
            group, size = [], 0
        group.append(operation)
        size += operation_size
    if group:
        yield tuple(group)


def plan_in_chunks(
    operations: Sequence[Operation],
    *,
    guards: tuple[Compare, ...],
    commit_compares: tuple[Compare, ...],
    commit_operations: tuple[Operation, ...],
    undo: tuple[StoreTxn, ...],
) -> Plan:
    """A plan of preparations and a commit; a small change is one transaction, its commit."""
    together = (*operations, *commit_operations)
    if len(together) <= MAX_OPERATIONS and len(list(chunks(together))) == 1:
        return Plan((), StoreTxn((*guards, *commit_compares), together))
    preparations = tuple(StoreTxn(guards, group) for group in chunks(operations))
    return Plan(preparations, StoreTxn((*guards, *commit_compares), commit_operations), undo)

"""A plan: the transactions that make a change, and the one among them that makes it real."""

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
"""Kept free in every transaction, for its comparisons and the writer's authority."""


class StoreTxn(NamedTuple):
    compares: tuple[Compare, ...]
    operations: tuple[Operation, ...]


class Plan(NamedTuple):
    """Do the preparations in any order, or together; when all have succeeded do the commit.

    Until the commit succeeds nobody can see any of it, so an interruption at any point leaves the old state, and after
    it the new one. If a comparison fails do `undo`, read again, and plan again.
    """

    preparations: tuple[StoreTxn, ...]
    commit: StoreTxn
    undo: tuple[StoreTxn, ...] = ()


def chunks(operations: Iterable[Operation]) -> Iterator[tuple[Operation, ...]]:
    """The operations in as few groups as fit transactions."""
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
    """A plan whose commit also carries the operations if they all fit into it: small changes are one transaction."""
    together = (*operations, *commit_operations)
    if len(list(chunks(together))) == 1:
        return Plan((), StoreTxn((*guards, *commit_compares), together))
    preparations = tuple(StoreTxn(guards, group) for group in chunks(operations))
    return Plan(preparations, StoreTxn((*guards, *commit_compares), commit_operations), undo)

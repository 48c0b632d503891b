"""A plan: the transactions of a change, and the commit that makes the change visible."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cordwood.cluster.metadata.rows import (
    TopicRow,
    deleted_topic_key,
    encode_overrides,
    encode_topic,
    partitions_prefix,
    topic_config_key,
    topic_key,
    topic_name_key,
)
from cordwood.cluster.metadata.strays import StrayPartitions
from cordwood.cluster.stores.interface import (
    MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES,
    Compare,
    Delete,
    DeletePrefix,
    Operation,
    Put,
    absent,
    has_value,
    operation_bytes,
    present,
)
from cordwood.model.identifiers import TopicId

_ROOM_FOR_COMPARES_BYTES = 64 * 1024
"""Room in every transaction for its comparisons and the writer's authority."""


class StoreTxn(NamedTuple):
    compares: tuple[Compare, ...]
    operations: tuple[Operation, ...]


class Plan(NamedTuple):
    """The transactions of a change: the announcement, if there is one; preparations, in any order or together; then, if
    all succeeded, the commit.

    Before the commit no reader sees any part of the change, so an interruption leaves the old state, and after the
    commit the new state. If a comparison fails, the caller runs `undo`, reads again, and plans again.
    """

    preparations: tuple[StoreTxn, ...]
    commit: StoreTxn
    undo: tuple[StoreTxn, ...] = ()
    leftovers: StrayPartitions | None = None
    """Prepared partitions that the caller sweeps after `undo`. A commit of unknown outcome may still be on its way to
    the store, and must not find its topic's row unchanged when partitions are gone."""
    announcement: StoreTxn | None = None
    """Writes the key that preparations and commit compare: a sweep that removes prepared keys removes this key, too."""
    happened: tuple[Compare, ...] = ()
    """Comparisons that decide an unknown outcome: one of them holds after the commit, and none before it."""

    def in_order(self) -> tuple[StoreTxn, ...]:
        """The transactions for a caller that runs one after the other."""
        first = () if self.announcement is None else (self.announcement,)
        return (*first, *self.preparations, self.commit)


def chunks(operations: Iterable[Operation], at_once: int = MAX_OPERATIONS) -> Iterator[tuple[Operation, ...]]:
    """Groups the operations into as few transactions as the limits allow."""
    group: list[Operation] = []
    size = 0
    for operation in operations:
        operation_size = operation_bytes(operation)
        if group and (
            len(group) == at_once or size + operation_size > MAX_TRANSACTION_BYTES - _ROOM_FOR_COMPARES_BYTES
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
    leftovers: StrayPartitions | None = None,
    happened: tuple[Compare, ...] = (),
) -> Plan:
    """A plan of preparations and a commit; a small change is one transaction, its commit.

    Every transaction compares the guards.
    """
    together = (*operations, *commit_operations)
    if _fit_one_transaction(together):
        return Plan((), StoreTxn((*guards, *commit_compares), together), happened=happened)
    preparations = tuple(StoreTxn(guards, group) for group in chunks(operations))
    commit = StoreTxn((*guards, *commit_compares), commit_operations)
    return Plan(preparations, commit, leftovers=leftovers, happened=happened)


def plan_creation(
    topic_id: TopicId,
    row: TopicRow,
    partitions: Sequence[Put],
    *,
    commit_compares: tuple[Compare, ...],
    overrides: Mapping[str, str],
) -> Plan:
    """A plan that writes a new topic's partitions, then its row, settings and name.

    The announcement is a row of no partitions. Preparations and commit compare that row, and a sweep removes it
    together with all prepared partitions: so the commit of a swept creation fails, and no topic lacks a partition.
    """
    key = topic_key(topic_id)
    commit_operations: list[Operation] = [
        Put(key, encode_topic(row)),
        Put(topic_name_key(row.name), str(topic_id).encode()),
    ]
    if overrides:
        commit_operations.append(Put(topic_config_key(topic_id), encode_overrides(dict(overrides))))
    compares = (absent(topic_name_key(row.name)), *commit_compares)
    together = (*partitions, *commit_operations)
    # No other plan has the topic's id. Its tombstone shows that another broker deleted the new topic at once.
    happened = (has_value(topic_name_key(row.name), str(topic_id).encode()), present(deleted_topic_key(topic_id)))
    if _fit_one_transaction(together):
        return Plan((), StoreTxn(compares, together), happened=happened)
    announced = encode_topic(row._replace(partition_count=0))
    guards = (has_value(key, announced),)
    return Plan(
        preparations=tuple(StoreTxn(guards, group) for group in chunks(partitions)),
        commit=StoreTxn((*guards, *compares), tuple(commit_operations)),
        undo=(StoreTxn(guards, (Delete(key), DeletePrefix(partitions_prefix(topic_id)))),),
        announcement=StoreTxn((), (Put(key, announced),)),
        happened=happened,
    )


def _fit_one_transaction(operations: Sequence[Operation]) -> bool:
    return len(operations) <= MAX_OPERATIONS and len(list(chunks(operations))) == 1

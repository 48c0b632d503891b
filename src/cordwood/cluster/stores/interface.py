"""The contract of a metadata store is etcd's: one node on SQLite and a cluster on etcd run the same code.

A store maps text keys to bytes. Keys are relative to the cluster (a store on etcd puts the cluster's prefix before
them). Every transaction that changes a key takes the next revision, and all its changes carry that revision. A
transaction that changes no key (a comparison failed, or only absent keys were deleted) leaves the revision as it was.
Old revisions can be read and watched until they are compacted. A store with other users counts their changes, too: the
revisions of this cluster's keys then have gaps.

A key may belong to a lease. When the lease expires or is revoked, all its keys vanish in one revision, and watchers see
the deletions. A store that lives in the process of its clients ends all leases when it is opened again: there the
connection is the lease.

A transaction is durable when `txn` returns. When `txn` raises `OutcomeUnknown`, the transaction may have happened, or
never happens, or happens later: the caller reads the keys again before it acts, and its next write compares the keys
that the lost transaction would have changed.
"""

from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from cordwood.model.errors import EnvironmentFailure

MAX_OPERATIONS = 128
"""The most comparisons, and the most changes, in one transaction: etcd's default --max-txn-ops."""
MAX_TRANSACTION_BYTES = 1_572_864
"""The most bytes of keys and values in one transaction: etcd's default --max-request-bytes."""
FIRST_REVISION = 1
"""The revision of an empty store; the first change gets the next revision."""


class StoreFailure(EnvironmentFailure):
    """The store failed. The transaction did not happen."""


class OutcomeUnknown(StoreFailure):
    """The store failed during a transaction: whether the transaction happened is unknown until the keys are read."""


class StoreUnavailable(StoreFailure):
    """The store cannot be reached for the moment. A watch that ends with this can be taken up where it broke."""


class StoreWentBack(StoreFailure):
    """The store is in an earlier state than it was: it was restored from an older copy."""

    def __init__(self, seen_revision: int = 0, revision: int = 0, what: str = "") -> None:
        """`what`: the part that is in an earlier state, if the revision does not show it."""
        went = f": {what}" if what else f" from revision {seen_revision} to {revision}"
        super().__init__(
            f"the metadata store went back{went}: it was restored from an older copy, and this broker's knowledge of "
            "the cluster is void; restart the broker once the store is right"
        )


class StoreClosed(StoreFailure):
    """The store was closed before or during the call."""


class LeaseEnded(StoreFailure):
    """The lease expired or was revoked, and its keys are gone. A transaction that put a key under it did nothing."""


class Compacted(Exception):
    """The requested revision is no longer kept: the caller lists the current revision and watches from there."""

    def __init__(self, compact_revision: int) -> None:
        super().__init__(f"revisions up to {compact_revision} are compacted")
        self.compact_revision = compact_revision


class InvalidTransaction(ValueError):
    """A transaction that every store refuses: too many operations, too many bytes, or one key changed twice."""


class KeyValue(NamedTuple):
    """A key that exists, as of some revision."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0
    """The lease that the key belongs to; 0: none."""


class Listing(NamedTuple):
    """The keys under a prefix as of one revision, sorted by key. To follow on, watch from `revision + 1`."""

    revision: int
    items: list[KeyValue]


class Event(NamedTuple):
    """A change of one key. A deletion has the value None and create_revision 0."""

    key: str
    value: bytes | None
    create_revision: int
    mod_revision: int


class WatchStep(NamedTuple):
    """One step of a watch, after which the watch has reported every change up to `revision`. `events` are those of one
    or more whole revisions, in order of revision; none if only other keys changed."""

    revision: int
    events: Sequence[Event]


class Target(Enum):
    """The compared part of a key. The revisions of an absent key are 0; every comparison of its value fails."""

    VALUE = "value"
    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"


class Relation(Enum):
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    GREATER = ">"


class Compare(NamedTuple):
    """A condition of a transaction: the key's target stands in this relation to the operand."""

    key: str
    target: Target
    relation: Relation
    operand: int | bytes


class Put(NamedTuple):
    """Writes a key, under a lease or under none (0), whatever its former lease was."""

    key: str
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    key: str


class DeletePrefix(NamedTuple):
    """Deletes every key under the prefix, however many: one operation."""

    prefix: str


Operation = Put | Delete | DeletePrefix


class TxnResult(NamedTuple):
    """The outcome of a transaction. `revision` is the store's revision after the transaction."""

    succeeded: bool
    revision: int


class MetadataStore(Protocol):
    """A store with the module's contract. Methods belong to one event loop, may run concurrently, and never block it.

    Transactions take effect in the order in which `txn` was called.
    """

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        """Does all operations if all comparisons hold, else none. Raises InvalidTransaction, StoreFailure."""
        ...

    async def grant(self, ttl_ms: int) -> int:
        """A new lease, which ends if it is not renewed within `ttl_ms`. Ids are above 0 and never given twice."""
        ...

    async def renew(self, lease: int) -> None:
        """Counts the lease's time from now on again. Raises LeaseEnded."""
        ...

    async def revoke(self, lease: int) -> None:
        """Ends the lease, if it has not ended yet."""
        ...

    async def get(self, key: str) -> KeyValue | None:
        """The key at the current revision; None if it is absent."""
        ...

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        """The keys under the prefix as of a revision (0: now). Raises Compacted; ValueError for a future revision."""
        ...

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
        """Yields every change under the prefix with mod_revision >= from_revision, in order of revision, as it happens.

        A watch of all keys reaches every revision that `txn` or `list` of this store has returned, by a step without
        events if need be: otherwise a caller that waits for that revision would wait for ever.

        Raises Compacted if from_revision, or a revision that a slow reader has not taken yet, is no longer kept;
        StoreUnavailable when the connection broke: the caller watches from the revision after the last one that it has
        taken; StoreClosed when the store is closed.
        """
        ...

    async def compact(self, revision: int) -> None:
        """Forgets values superseded up to this revision. `list` at the revision and `watch` behind it still work."""
        ...

    async def close(self) -> None:
        """Finishes earlier calls, then releases all resources. Safe to call twice."""
        ...


def absent(key: str) -> Compare:
    return Compare(key, Target.CREATE_REVISION, Relation.EQUAL, 0)


def present(key: str) -> Compare:
    return Compare(key, Target.CREATE_REVISION, Relation.NOT_EQUAL, 0)


def unchanged_since(item: KeyValue) -> Compare:
    """The comparison that fails if the key was written since it was read, even with the same value."""
    return Compare(item.key, Target.MOD_REVISION, Relation.EQUAL, item.mod_revision)


def has_mod_revision(key: str, mod_revision: int) -> Compare:
    return Compare(key, Target.MOD_REVISION, Relation.EQUAL, mod_revision)


def has_value(key: str, value: bytes) -> Compare:
    return Compare(key, Target.VALUE, Relation.EQUAL, value)


def holds(compare: Compare, item: KeyValue | None) -> bool:
    """True if a comparison holds for the present state of its key (None: absent)."""
    actual: int | bytes
    if compare.target is Target.VALUE:
        if item is None:
            return False
        actual = item.value
    elif item is None:
        actual = 0
    else:
        actual = item.mod_revision if compare.target is Target.MOD_REVISION else item.create_revision
    operand = compare.operand
    if compare.relation is Relation.EQUAL:
        return actual == operand
    if compare.relation is Relation.NOT_EQUAL:
        return actual != operand
    if compare.relation is Relation.LESS:
        return actual < operand  # type: ignore[operator]  # both int or both bytes: check_transaction saw to it
    return actual > operand  # type: ignore[operator]


def operation_bytes(operation: Operation) -> int:
    """The bytes that an operation adds to the size of a transaction."""
    if isinstance(operation, Put):
        return len(operation.key) + len(operation.value)
    return len(operation[0])


def check_transaction(compares: Sequence[Compare], operations: Sequence[Operation]) -> None:
    """Raises InvalidTransaction if etcd would refuse the transaction."""
    count = max(len(compares), len(operations))
    if count > MAX_OPERATIONS:
        raise InvalidTransaction(f"{count} operations in one transaction, at most {MAX_OPERATIONS} are allowed")
    size = sum(map(operation_bytes, operations))
    for compare in compares:
        if isinstance(compare.operand, bytes) is not (compare.target is Target.VALUE):
            raise InvalidTransaction(f"{compare} compares unlike things")
        size += len(compare.key) + (len(compare.operand) if isinstance(compare.operand, bytes) else 8)
    if size > MAX_TRANSACTION_BYTES:
        raise InvalidTransaction(f"{size} bytes in one transaction, at most {MAX_TRANSACTION_BYTES} are allowed")
    puts = [operation.key for operation in operations if isinstance(operation, Put)]
    keys = puts + [operation.key for operation in operations if isinstance(operation, Delete)]
    if len(set(keys)) != len(keys):
        raise InvalidTransaction("one key is changed twice in one transaction")
    if not all(keys):
        raise InvalidTransaction("a key is empty")
    prefixes = [operation.prefix for operation in operations if isinstance(operation, DeletePrefix)]
    for prefix in prefixes:
        if any(key.startswith(prefix) for key in puts):
            raise InvalidTransaction(f"a key under {prefix!r} is put and deleted in one transaction")


def prefix_end(prefix: str) -> str | None:
    """The first key after all keys that start with the prefix; None if there is no such bound."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else None

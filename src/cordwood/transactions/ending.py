"""EndTxn, timeouts, and the completion after the markers.

Once a Prepare record is committed the outcome stands: the markers are written, again after every restart, until the
Complete record follows. With transaction version 2 every end raises the epoch, so a late EndTxn has an epoch of the
past and cannot hit the next transaction.
"""

from dataclasses import replace

from cordwood.model.errors import ErrorCode
from cordwood.transactions.adding import owner_problem
from cordwood.transactions.transaction import (
    EPOCH_BUMPED,
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    NewProducerId,
    State,
    Step,
    Transaction,
)

_COMPLETES = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}


def end_transaction(
    found: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    client_version: int,
    new_producer_id: NewProducerId,
    wall_ms: int,
    next_begun: bool = False,
) -> Step:
    """Commits or aborts: the Prepare state, and with version 2 the id and epoch to go on with.

    `next_begun`: a client of version 1 has begun a transaction after the one that is decided, and added nothing to it
    (`next_begun.py`).
    """
    if found is None:
        return Step(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if client_version < EPOCH_BUMPED:
        return _end_same_epoch(found, producer_id, producer_epoch, commit, client_version, wall_ms, next_begun)
    repeated = _repeats(found, producer_id, producer_epoch)
    if not repeated and (problem := owner_problem(found, producer_id, producer_epoch)) is not ErrorCode.NONE:
        return Step(problem)
    if found.state in PREPARED:
        return Step(ErrorCode.CONCURRENT_TRANSACTIONS if found.commits == commit else ErrorCode.INVALID_TXN_STATE)
    if repeated:
        return _repeated(found, commit)
    if found.state is not State.ONGOING and commit:
        return Step(ErrorCode.INVALID_TXN_STATE)
    return _prepare_raised(found, commit, client_version, new_producer_id, wall_ms)


def _repeats(found: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Whether the request repeats the end of the last transaction, whose answer was lost: it carries that epoch."""
    if found.state not in (*PREPARED, State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        return False
    if producer_epoch != found.last_producer_epoch or producer_epoch == NO_PRODUCER_EPOCH:
        return False
    return producer_id == found.producer_id or (
        producer_id == found.previous_producer_id and producer_epoch == LAST_CLIENT_EPOCH
    )


def _repeated(found: Transaction, commit: bool) -> Step:
    if (found.state is State.COMPLETE_COMMIT) != commit:
        return Step(ErrorCode.INVALID_TXN_STATE)
    if found.producer_epoch > LAST_CLIENT_EPOCH:
        # The producer was fenced with the highest epoch, which no client gets: InitProducerId gives it another id.
        return Step(ErrorCode.PRODUCER_FENCED)
    return Step(ErrorCode.NONE, None, found.producer_id, found.producer_epoch)


def _prepare_raised(
    found: Transaction, commit: bool, client_version: int, new_producer_id: NewProducerId, wall_ms: int
) -> Step:
    next_id = new_producer_id() if found.epoch_exhausted else NO_PRODUCER_ID
    ongoing = found.state is State.ONGOING
    changed = replace(
        found,
        state=found.moved_to(State.PREPARE_COMMIT if commit else State.PREPARE_ABORT),
        producer_epoch=found.producer_epoch + 1,
        last_producer_epoch=found.producer_epoch,
        next_producer_id=next_id,
        previous_producer_id=NO_PRODUCER_ID,
        client_version=client_version,
        partitions=found.partitions if ongoing else frozenset(),
        topic_ids=found.topic_ids if ongoing else (),
        started_ms=found.started_ms if ongoing else wall_ms,
        updated_ms=wall_ms,
    )
    if next_id != NO_PRODUCER_ID:
        return Step(ErrorCode.NONE, changed, next_id, 0)
    return Step(ErrorCode.NONE, changed, changed.producer_id, changed.producer_epoch)


def _end_same_epoch(
    found: Transaction,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    client_version: int,
    wall_ms: int,
    next_begun: bool,
) -> Step:
    if producer_id != found.producer_id:
        return Step(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer_epoch != found.producer_epoch or producer_epoch > LAST_CLIENT_EPOCH:
        return Step(ErrorCode.PRODUCER_FENCED)
    aborts_next = next_begun and not commit
    if found.state in PREPARED:
        waits = found.commits == commit or aborts_next
        return Step(ErrorCode.CONCURRENT_TRANSACTIONS if waits else ErrorCode.INVALID_TXN_STATE)
    if found.state is State.ONGOING:
        changed = replace(
            found,
            state=found.moved_to(State.PREPARE_COMMIT if commit else State.PREPARE_ABORT),
            client_version=client_version,
            updated_ms=wall_ms,
        )
        return Step(ErrorCode.NONE, changed)
    done = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
    # A repeated request, or one of a client that wrote nothing since: without epochs there is no telling.
    return Step(ErrorCode.NONE if found.state is done or aborts_next else ErrorCode.INVALID_TXN_STATE)


def time_out(found: Transaction, wall_ms: int) -> Transaction:
    """The coordinator aborts a transaction that was open for too long. Its producer is fenced; with version 2 it can
    still end the transaction it believes in, learns the new epoch, and goes on."""
    raised = found.client_version >= EPOCH_BUMPED and not found.epoch_exhausted
    return found.fenced(wall_ms, last_producer_epoch=found.producer_epoch if raised else NO_PRODUCER_EPOCH)


def complete(found: Transaction, wall_ms: int) -> Transaction:
    """All markers are written."""
    assert found.state in PREPARED
    changed = replace(
        found,
        state=found.moved_to(_COMPLETES[found.state]),
        partitions=frozenset(),
        topic_ids=(),
        updated_ms=wall_ms,
        next_producer_id=NO_PRODUCER_ID,
    )
    if found.next_producer_id == NO_PRODUCER_ID:
        return changed
    return replace(
        changed,
        producer_id=found.next_producer_id,
        producer_epoch=0,
        previous_producer_id=found.producer_id,
    )

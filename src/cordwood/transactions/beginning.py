"""InitProducerId with a transactional id: makes the caller the only producer of the id, and fences the former one."""

from dataclasses import replace
from typing import NamedTuple

from cordwood.model.errors import ErrorCode
from cordwood.transactions.transaction import (
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    NewProducerId,
    State,
    Step,
    Transaction,
)


class Beginning(NamedTuple):
    """A request of a producer that starts, or goes on after an error with the id and epoch that it had."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def resumes(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


def init_producer(found: Transaction | None, asked: Beginning, new_producer_id: NewProducerId, wall_ms: int) -> Step:
    """Id and epoch for the producer. CONCURRENT_TRANSACTIONS with a change: an open transaction is aborted first."""
    if found is None:
        return _given(Transaction(asked.transactional_id, new_producer_id(), 0, asked.timeout_ms, State.EMPTY, wall_ms))
    if asked.resumes and not _is_or_was(found, asked):
        return Step(ErrorCode.PRODUCER_FENCED)
    if found.state in PREPARED:
        return Step(ErrorCode.CONCURRENT_TRANSACTIONS)
    if found.state is State.ONGOING:
        if asked.resumes and asked.producer_epoch != found.producer_epoch:
            return Step(ErrorCode.PRODUCER_FENCED)
        # No client gets the epoch of the abort: the client asks again, and gets a higher one.
        last_epoch = found.producer_epoch if asked.resumes else NO_PRODUCER_EPOCH
        return Step(ErrorCode.CONCURRENT_TRANSACTIONS, found.fenced(wall_ms, last_producer_epoch=last_epoch))
    return _raised(found, asked, new_producer_id, wall_ms)


def _is_or_was(found: Transaction, asked: Beginning) -> bool:
    if asked.producer_id == found.producer_id:
        return True
    return asked.producer_id == found.previous_producer_id and asked.producer_epoch >= LAST_CLIENT_EPOCH


def _raised(found: Transaction, asked: Beginning, new_producer_id: NewProducerId, wall_ms: int) -> Step:
    fresh = replace(
        found,
        state=found.moved_to(State.EMPTY),
        timeout_ms=asked.timeout_ms,
        partitions=frozenset(),
        topic_ids=(),
        started_ms=-1,
        updated_ms=wall_ms,
        next_producer_id=NO_PRODUCER_ID,
    )
    current = asked.producer_id == found.producer_id and asked.producer_epoch == found.producer_epoch
    if asked.resumes and not current:
        # The epoch was raised already: by the same request, whose answer got lost, or by a fencing.
        if asked.producer_epoch != found.last_producer_epoch or asked.producer_epoch == NO_PRODUCER_EPOCH:
            return Step(ErrorCode.PRODUCER_FENCED)
        if found.producer_epoch <= LAST_CLIENT_EPOCH:
            return _given(fresh)
    last_epoch = found.producer_epoch if asked.resumes else NO_PRODUCER_EPOCH
    if found.epoch_exhausted:
        return _given(
            replace(
                fresh,
                producer_id=new_producer_id(),
                producer_epoch=0,
                previous_producer_id=found.producer_id,
                last_producer_epoch=last_epoch,
            )
        )
    return _given(
        replace(
            fresh,
            producer_epoch=found.producer_epoch + 1,
            previous_producer_id=NO_PRODUCER_ID,
            last_producer_epoch=last_epoch,
        )
    )


def _given(changed: Transaction) -> Step:
    return Step(ErrorCode.NONE, changed, changed.producer_id, changed.producer_epoch)

"""The state of one transactional id, and the values in which transitions answer.

A `Transaction` is immutable: every transition makes a new one, which takes effect when its record is replayed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import NO_TIMESTAMP_MS, TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_BATCH_ID = -1
MAX_EPOCH = 2**15 - 1
LAST_CLIENT_EPOCH = MAX_EPOCH - 1
"""No client is given a higher one: the coordinator must always be able to raise it once more, to fence."""

EPOCH_BUMPED = 2
"""The transaction version (KIP-890) from which on every completion raises the epoch."""


class State(IntEnum):
    """As they are written in __transaction_state."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that tools show and filter by."""
        return self.name.title().replace("_", "")


PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
"""Decided: the markers are on their way, and nothing can change the outcome."""

AT_REST = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id: who may write in its name, and the transaction that is open or was the last one."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    updated_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP_MS
    previous_producer_id: int = NO_PRODUCER_ID
    """The one before a change of id: a client that missed the answer still uses it."""
    next_producer_id: int = NO_PRODUCER_ID
    """While the transaction completes: the producer id that the client goes on with, because the epochs of the old one
    are used up."""
    client_version: int = 0
    """The transaction version of the client's last request."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch that its client was raised from: a repeated request carries it. None after fencing somebody."""
    batch_id: int = NO_BATCH_ID
    """Of a family's slot: the batch that it was joined for last."""

    @property
    def epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def commits(self) -> bool:
        assert self.state in PREPARED
        return self.state is State.PREPARE_COMMIT

    def fenced(self, now_ms: int, *, last_producer_epoch: int = NO_PRODUCER_EPOCH) -> "Transaction":
        """The open transaction is aborted by the coordinator, and its producer can write no more."""
        assert self.state is State.ONGOING
        return replace(
            self,
            state=State.PREPARE_ABORT,
            # No client is at the last one, but a log may say so.
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=last_producer_epoch,
            updated_ms=now_ms,
        )


class Step(NamedTuple):
    """The result of a request. State changes only when the record of `changed` is replayed."""

    error: ErrorCode = ErrorCode.NONE
    changed: Transaction | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    """Id and epoch that the client goes on with, where the answer has them."""


NewProducerId = Callable[[], int]
"""Returns a producer id that was never given out before."""


class NeedsProducerId(Exception):
    """The transition cannot be taken without a fresh producer id: get one and ask again."""


def no_producer_id() -> int:
    """For the first try: most transitions need none."""
    raise NeedsProducerId

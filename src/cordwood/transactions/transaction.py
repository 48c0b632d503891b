"""The state of one transactional id, and the values in which transitions answer.

A `Transaction` is immutable: every transition makes a new one, which takes effect when its record is replayed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from cordwood.model.errors import ErrorCode
from cordwood.model.families import slot_of
from cordwood.model.identifiers import NO_TIMESTAMP_MS, TopicId, TopicPartition
from cordwood.model.state_tables import Moves

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_BATCH_ID = -1
MAX_EPOCH = 2**15 - 1
LAST_CLIENT_EPOCH = MAX_EPOCH - 1
"""The highest epoch of a client: the coordinator must be able to raise it once more, to fence."""

SAME_EPOCH = 1
"""The transaction version of clients that keep their epoch from one transaction to the next."""
EPOCH_BUMPED = 2
"""The transaction version (KIP-890) from which on every completion raises the epoch."""


class State(IntEnum):
    """States of a transaction, numbered as in __transaction_state. A transaction that does not exist is DEAD."""

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
"""Decided states: the markers are on their way, and the outcome is final."""

AT_REST = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

JOINED = (State.EMPTY, State.ONGOING)
"""The states in which a writer may use a family's slot."""

FREE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
"""The states in which a family's slot may be joined."""

TRANSACTION_MOVES = Moves(
    "transaction",
    {
        State.EMPTY: AT_REST,
        State.ONGOING: (State.ONGOING, *AT_REST),
        State.PREPARE_COMMIT: (State.ONGOING,),
        # Version 2 of transactions aborts without a record, too: a late abort gets an epoch of its own.
        State.PREPARE_ABORT: (State.ONGOING, *AT_REST),
        State.COMPLETE_COMMIT: (State.PREPARE_COMMIT,),
        State.COMPLETE_ABORT: (State.PREPARE_ABORT,),
        State.DEAD: AT_REST,
        State.PREPARE_EPOCH_FENCE: (),
    },
)

SLOT_MOVES = Moves(
    "slot",
    {
        State.EMPTY: FREE,
        State.ONGOING: JOINED,
        State.PREPARE_COMMIT: (State.ONGOING,),
        State.PREPARE_ABORT: (State.ONGOING,),
        # A slot without records needs no markers: its end is complete at once.
        State.COMPLETE_COMMIT: (State.PREPARE_COMMIT, State.EMPTY),
        State.COMPLETE_ABORT: (State.PREPARE_ABORT, State.EMPTY),
        State.DEAD: FREE,
        State.PREPARE_EPOCH_FENCE: (),
    },
)

IN_LOG = frozenset(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE}
"""The states that a record may have: for Dead there is a null value, and Kafka has PrepareEpochFence in memory only."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id: its producer, and its open or last transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    updated_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP_MS
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before a change: a client that missed the answer still uses it."""
    next_producer_id: int = NO_PRODUCER_ID
    """While the transaction completes: the producer id that the client goes on with, because the epochs of the old one
    are used up."""
    client_version: int = 0
    """The transaction version of the client's last request."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The client's epoch before it was raised, which a repeated request carries; none after a fencing."""
    batch_id: int = NO_BATCH_ID
    """The last batch that a family's slot was joined for."""
    topic_ids: tuple[tuple[str, TopicId], ...] = ()
    """The ids of the topics in `partitions`, as far as they are known, by name: a topic that is deleted and created
    anew meanwhile is another one."""

    @property
    def epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def commits(self) -> bool:
        assert self.state in PREPARED
        return self.state is State.PREPARE_COMMIT

    def moved_to(self, state: State) -> State:
        """The state, checked to be an allowed one after the present state."""
        moves = TRANSACTION_MOVES if slot_of(self.transactional_id) is None else SLOT_MOVES
        return moves.moved(self.transactional_id, self.state, state)

    def fenced(self, wall_ms: int, *, last_producer_epoch: int = NO_PRODUCER_EPOCH) -> "Transaction":
        """The transaction, aborted by the coordinator, with its producer fenced."""
        assert self.state is State.ONGOING
        return replace(
            self,
            state=self.moved_to(State.PREPARE_ABORT),
            # No client has the highest epoch, but a log may have it.
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=last_producer_epoch,
            updated_ms=wall_ms,
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
    """The transition needs a fresh producer id: the caller gets one and tries again."""


def no_producer_id() -> int:
    """The source of producer ids for the first try: most transitions need none."""
    raise NeedsProducerId

"""A follower of one partition in one leader epoch: its next fetch, and its reaction to the leader's answer.

| the leader answers | the follower |
| --- | --- |
| records | appends them; its high watermark is min(leader's, own end); it takes the leader's log start over |
| a diverging epoch and its end | cuts its log at min(that end, its own end of that epoch), and asks again |
| the same, below its high watermark | keeps its log, and waits, unless a loss was recorded since that watermark |
| the same, and an operator accepted that loss | sets its log aside, and is filled anew |
| OFFSET_OUT_OF_RANGE, and a log start above its end | begins anew at the leader's log start |
| a batch that holds the leader's log start, and the follower's log is empty | begins anew at the batch, and takes it |
| records, and deletions were dropped that this log may need | sets its log aside, and is filled anew |
| another error | waits, and asks again |

A follower whose log files are gone says that it has nothing, and takes nothing while it counts as in sync. Once it has
left the in-sync set, its log begins anew.

A follower whose log start is in doubt asks at the last start that it knows, so that it does not count as in sync. A
leader with an earlier start has records that this log lost: the log is set aside, and filled anew. Any other leader
ends the doubt.

A leader that lacks committed records was elected by mistake: by metadata that went back, or on a disk that did. Only a
loss that is recorded (`lossy_epoch` of the partition's row) after the epoch in which this replica learned of its high
watermark allows a cut below the high watermark: otherwise the only copy of acknowledged records would be cut.

The follower never cuts its log at its high watermark: records above it may be acknowledged. Clients may read below the
high watermark (`node/replication/near_reads.py` says when): the leader of this epoch has said that these records are
committed, in an answer that found no divergence. Only the answer to the outstanding request counts: a late one
describes an earlier state of this log. The machine does no I/O and reads no clock; the caller appends and cuts.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.replication.dropped_deletions import Verdict, judge
from cordwood.replication.epochs import check_epoch
from cordwood.segments.dropped_deletions import Dropped

UNKNOWN_EPOCH = -1


class FetchFrom(NamedTuple):
    """A follower's request to its leader."""

    offset: int
    """The end that counts: durable under `ack.durability=disk`, else the log's end."""
    last_fetched_epoch: int
    """The epoch of the last record below the offset; -1 if the log is empty."""
    log_start: int
    """The start of the log that a crash does not take back: the leader's DeleteRecords waits for it."""


class LeaderAnswer(NamedTuple):
    error: int
    high_watermark: int = -1
    log_start: int = -1
    records: bytes | None = None
    diverging_epoch: int = -1
    diverging_end: int = -1
    dropped: Dropped | None = None


class Append(NamedTuple):
    """The answer holds the records that follow the follower's log; it may hold none."""

    records: bytes
    dropped: Dropped | None = None
    """The leader's note of dropped deletions, which an empty log takes over before it takes records."""


class Cut(NamedTuple):
    """The follower's history left the leader's at this offset."""

    offset: int


class Withhold(NamedTuple):
    """The leader's history leaves the follower's at this offset, below the follower's high watermark, and no loss is
    recorded. The log stays as it is."""

    offset: int


class GiveUp(NamedTuple):
    """The situation of `Withhold`, but an operator has accepted the loss. The log is set aside, and filled anew."""

    offset: int


class Restart(NamedTuple):
    """The leader has no records with which the follower's log could go on. The log begins anew at this offset."""

    offset: int


class RestartWith(NamedTuple):
    """The leader's log starts inside of a batch. A log without records that the leader still has begins anew at the
    start of that batch, and takes it."""

    offset: int
    records: bytes
    dropped: Dropped | None = None
    """The leader's note of dropped deletions, as in `Append`."""


class Refill(Enum):
    """The log is set aside, and filled anew. The value says why."""

    LACKS_DELETIONS = "its leader removed markers or tombstones by compaction that this copy never had"
    LACKS_BEGINNING = "its leader has records from before its first file, and nothing tells that they were deleted here"


class StartConfirmed(NamedTuple):
    """The leader has no records before the start of the follower's log, which was in doubt."""


class Refused(NamedTuple):
    error: ErrorCode


class Late(NamedTuple):
    """The answer belongs to no outstanding request."""


Step = Append | Cut | Withhold | GiveUp | Restart | RestartWith | Refill | StartConfirmed | Refused | Late


class FollowerReplica:
    """Follows one leader in one epoch. A new epoch is a new object over the same log."""

    __slots__ = (
        "_accepted_epoch",
        "_asked",
        "_lossy_epoch",
        "heard_ms",
        "high_watermark",
        "leader",
        "leader_epoch",
        "leader_high_watermark",
        "log",
        "watermark_epoch",
    )

    def __init__(
        self,
        log: Log,
        leader: int,
        leader_epoch: int,
        high_watermark: int,
        *,
        watermark_epoch: int = UNKNOWN_EPOCH,
        lossy_epoch: int = 0,
        accepted_epoch: int = 0,
    ) -> None:
        """`watermark_epoch`: the leader epoch in which the high watermark was last known; -1: unknown. `lossy_epoch`,
        `accepted_epoch`: from the partition's row: the epoch of the last leader that may lack acknowledged records, and
        the epoch of the last such leader whose loss an operator accepted."""
        self.log = log
        self.watermark_epoch = watermark_epoch
        self._lossy_epoch = lossy_epoch
        self._accepted_epoch = accepted_epoch
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.high_watermark = max(log.offsets.start, min(high_watermark, log.offsets.end))
        self.leader_high_watermark = self.high_watermark
        """The high watermark of the leader, as it was last told: the end of this log may be below it."""
        self.heard_ms: int | None = None
        """The time of the last answer of this epoch's leader that goes on from this log; None: none yet."""
        self._asked: FetchFrom | None = None

    @property
    def lag(self) -> int:
        """Committed records that this log lacks, by the last answer of the leader."""
        return max(0, self.leader_high_watermark - self.log.offsets.end)

    @property
    def durable(self) -> bool:
        """True if every record of this log counts as this replica's."""
        log = self.log
        return not log.acks_mean_disk or log.offsets.durable_end >= log.offsets.end

    def ask(self) -> FetchFrom | None:
        """The next request; None while the last records are not durable. The previous request is forgotten."""
        if not self.durable:
            return None
        offsets = self.log.offsets
        start = min(offsets.saved_start, offsets.start)
        epoch = UNKNOWN_EPOCH
        if self.log.lost or offsets.start_in_doubt:
            self._asked = FetchFrom(offsets.told_start, epoch, start)
            return self._asked
        if offsets.end > offsets.start:
            epoch = self.log.replayed.leader_epochs.epoch_at(offsets.end - 1)
        self._asked = FetchFrom(offsets.end, epoch, start)
        return self._asked

    def answered(self, asked: FetchFrom, answer: LeaderAnswer) -> Step:
        """The reaction to the leader's answer to this request."""
        if asked is not self._asked:
            return Late()
        if self.log.offsets.start_in_doubt:
            self._asked = None
            return self._judge_start(answer)
        if asked.offset != self.log.offsets.end:
            return Late()
        self._asked = None
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start >= 0:
            offsets = self.log.offsets
            if answer.log_start > offsets.end or offsets.start == offsets.end:
                return Restart(answer.log_start)
        if answer.error != ErrorCode.NONE:
            return Refused(ErrorCode(answer.error))
        if answer.diverging_epoch >= 0:
            offset = self.cut_at(answer.diverging_epoch, answer.diverging_end)
            if offset >= self.high_watermark:
                return Cut(offset)
            if not self.loss_is_recorded:
                return Withhold(offset)
            return GiveUp(offset) if self.follows_accepted_loss and self.watermark_epoch >= 0 else Cut(offset)
        offsets, records = self.log.offsets, answer.records or b""
        empty = offsets.start == offsets.end
        verdict = judge(self.log.segments.dropped, answer.dropped, empty=empty, end=offsets.end)
        if verdict is Verdict.REFILL:
            return Refill.LACKS_DELETIONS
        dropped = answer.dropped if verdict is Verdict.TAKE_OVER else None
        if records and (empty or offsets.end <= answer.log_start):
            # The bytes are checked when they are appended.
            base = int.from_bytes(records[:8], "big", signed=True)
            if 0 <= base < offsets.end:
                return RestartWith(base, records, dropped)
        return Append(records, dropped)

    def _judge_start(self, answer: LeaderAnswer) -> Step:
        if answer.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE) or answer.log_start < 0:
            return Refused(ErrorCode(answer.error))
        return Refill.LACKS_BEGINNING if answer.log_start < self.log.offsets.start else StartConfirmed()

    def cut_at(self, leader_epoch: int, leader_end: int) -> int:
        """The end of the history that this log shares with the leader's: at most the given end of the epoch."""
        offsets = self.log.offsets
        _, own_end = self.log.replayed.leader_epochs.end_offset_for(leader_epoch, offsets.end)
        return min(leader_end, own_end if own_end >= 0 else offsets.end, offsets.end)

    @property
    def loss_is_recorded(self) -> bool:
        """True if a leader was elected since that may lack records below the high watermark. A high watermark that an
        earlier release saved has no epoch, and is not defended."""
        return self.watermark_epoch == UNKNOWN_EPOCH or self._lossy_epoch > self.watermark_epoch

    @property
    def follows_accepted_loss(self) -> bool:
        """True if an operator accepted since the high watermark was known that the leader may lack records. Records
        above that high watermark may have been acknowledged, too: after a kill it is that of the last checkpoint."""
        return self._accepted_epoch > self.watermark_epoch

    def took(self, leader_high_watermark: int, boot_ms: int) -> bool:
        """The records of an answer are appended. True if the high watermark moved."""
        self.leader_high_watermark = leader_high_watermark
        self.heard_ms = boot_ms
        self.log.end_is_known()
        end = min(leader_high_watermark, self.log.offsets.end)
        if end < self.high_watermark:
            return False
        # Metadata that went back may have earlier epochs than this replica knows.
        self.watermark_epoch = max(self.watermark_epoch, self.leader_epoch)
        if end == self.high_watermark:
            return False
        self.high_watermark = end
        self.log.replayed.committed_to(end)
        return True

    def was_cut(self) -> None:
        """Notes that the log was cut, or began anew."""
        offsets = self.log.offsets
        self.high_watermark = max(offsets.start, min(self.high_watermark, offsets.end))
        self.heard_ms = None

    # Clients

    @property
    def last_stable_offset(self) -> int:
        """The end for a read_committed reader that this replica knows."""
        return max(self.log.replayed.last_stable_offset(self.high_watermark), self.log.offsets.start)

    def check_reader(self, leader_epoch: int, offset: int, last_fetched_epoch: int) -> None:
        """Refuses a reader in another leader epoch, at an offset that this log does not have, or of another history.

        Only the leader knows whether an offset that is not here exists: the reader is told OFFSET_NOT_AVAILABLE, goes
        back to the leader, and keeps its position. OFFSET_OUT_OF_RANGE or a divergence would make the reader reset its
        position, although this replica may only be late.
        """
        check_epoch(self.log, self.leader_epoch, leader_epoch)
        offsets = self.log.offsets
        known = offsets.start <= offset <= offsets.end
        if known and last_fetched_epoch >= 0:
            epoch, end = self.log.replayed.leader_epochs.end_offset_for(last_fetched_epoch, offsets.end)
            known = epoch == last_fetched_epoch and offset <= end
        if not known:
            raise ProtocolError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{self.log.partition} of broker {self.leader} is followed here from {offsets.start} to {offsets.end}: "
                f"the leader knows of offset {offset} in epoch {last_fetched_epoch}.",
            )

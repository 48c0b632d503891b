"""The verdict on a follower's log whose leader has dropped deletions by compaction: go on, or be filled anew.

A deletion is the marker of a transaction, or a tombstone. A follower that was away while its leader dropped one never
gets it: the records that the deletion ended or deleted would stay in the follower's log for ever, and an aborted
transaction would end with its producer's next commit. Replicas compact by themselves, so two of them lack different
deletions; a follower may go on if it lacks no deletion that its own log still needs.

| the leader's log lacks | the follower's log | verdict |
| --- | --- | --- |
| nothing at or above the follower's end | any | GO_ON: the follower had every deletion that the leader lacks |
| a deletion at or above it | is empty | TAKE_OVER: it becomes a copy, and from now on lacks what the leader lacks |
| a deletion at or above it | was filled from a log with the same mark | GO_ON: it is a copy of the part below its end |
| a deletion at or above it | anything else | REFILL |

An in-sync replica has every committed record, and compaction removes only committed ones: it is never told to refill.
The function does no I/O.
"""

from enum import Enum

from cordwood.segments.dropped_deletions import Dropped


class Verdict(Enum):
    GO_ON = "the leader's records go on from the log"
    TAKE_OVER = "the empty log takes the leader's note over, durably, before its first record"
    REFILL = "the log may need a deletion that the leader lacks: it is filled anew"


def judge(own: Dropped | None, leaders: Dropped | None, *, empty: bool, end: int) -> Verdict:
    """`leaders`: the note of the leader's log at or after the moment at which its records were read; None: the leader
    lacks no deletion, or is of a release that does not know. `end`: the end of the follower's log."""
    if leaders is None or leaders.highest < end:
        return Verdict.GO_ON
    if own is not None and own.mark == leaders.mark:
        return Verdict.GO_ON
    return Verdict.TAKE_OVER if empty else Verdict.REFILL

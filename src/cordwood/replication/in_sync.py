"""The in-sync set of one partition as its leader keeps it: the committed set, changes on their way, who falls behind.

A change of the set is a write to the metadata store by the leader. Until its outcome is known, the leader counts with
the union of the committed set and of all sets that it has asked for (`maximal`): the successor comes from one of them.

| change | begins with | ends with |
| --- | --- | --- |
| NONE | the image shows a later revision of the partition, or the store refused the only request | `asked` |
| ASKED | `asked` | an outcome |
| APPLIED | the store took the change | the image shows it |
| UNCERTAIN | the store did not say | the image shows a later revision; the leader asks again meanwhile |

The machine does no I/O and reads no clock.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from cordwood.model.identifiers import NO_BROKER_EPOCH, NO_OFFSET, BrokerEpoch, Offset
from cordwood.model.state_tables import Moves, State


class Version(NamedTuple):
    """The partition's row that the leader has seen."""

    partition_epoch: int = 0
    mod_revision: int = 0


class Change(State):
    NONE = "no change is on its way"
    ASKED = "a request is on its way to the store"
    APPLIED = "the store has the change, the image does not show it yet"
    UNCERTAIN = "the store may have a change"


IN_SYNC_MOVES = Moves(
    "change of an in-sync set",
    {
        Change.NONE: {Change.NONE, Change.ASKED, Change.APPLIED, Change.UNCERTAIN},
        Change.ASKED: {Change.NONE, Change.UNCERTAIN},
        Change.APPLIED: {Change.ASKED},
        Change.UNCERTAIN: {Change.ASKED},
    },
)


class Follower:
    """The leader's knowledge of one follower since it leads. A replica that has not fetched yet has no end."""

    __slots__ = (
        "_answered",
        "_leader_end",
        "broker_epoch",
        "caught_up_ms",
        "end",
        "fetched_ms",
        "log_start",
        "told_start",
        "vouches_ms",
    )

    def __init__(self) -> None:
        self.end = NO_OFFSET
        """The end of the follower's log as `ack.durability` counts: its last fetch offset; -1: it has not fetched."""
        self.log_start = NO_OFFSET
        """The start that the follower had saved at its last fetch; -1: it did not say."""
        self.told_start: int = NO_OFFSET
        """The latest start of the leader's log that the follower has, or has been told."""
        self.broker_epoch = NO_BROKER_EPOCH
        self.caught_up_ms: int | None = None
        """The time at which the follower last had all that the leader had. None: not since the leadership began."""
        self.vouches_ms = -1
        """A time since which the follower is known to have followed in this epoch; -1: there is none."""
        self._answered = (-1, -1)
        """The connection of the leader's last answer, and its time."""
        self.fetched_ms = -1
        """The arrival of the last fetch; -1: none."""
        self._leader_end = -1
        """The leader's log end at the last fetch."""

    def answered(self, log_start: int, connection_id: int, boot_ms: int) -> None:
        """Notes that the leader answered the follower's fetch with this log start."""
        self.told_start = log_start
        self._answered = (connection_id, boot_ms)

    def fetched(
        self,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        log_start: Offset,
        leader_end: int,
        connection_id: int,
        boot_ms: int,
    ) -> None:
        """Takes a fetch at `offset`, whose history agrees with the leader's.

        The fetch may be old: a process that was stopped finds full buffers. But the follower sent it after it got the
        previous answer on the connection.
        """
        if connection_id >= 0 and self._answered[0] == connection_id:
            self.vouches_ms = self._answered[1]
        if offset >= leader_end:
            self.caught_up_ms = boot_ms
        elif self._leader_end >= 0 and offset >= self._leader_end and broker_epoch == self.broker_epoch:
            # The follower now has all that the leader had at the previous fetch: at that time it was caught up.
            self.caught_up_ms = max(self.caught_up_ms or 0, self.fetched_ms)
        elif self.caught_up_ms is None:
            self.caught_up_ms = boot_ms
        self.broker_epoch = broker_epoch
        self.end = offset
        self.log_start = log_start
        if log_start > self.told_start:
            self.told_start = log_start
        self.fetched_ms = boot_ms
        self._leader_end = leader_end

    def lags(self, leader_end: int, boot_ms: int, lag_ms: int) -> bool:
        """True if the follower has not been caught up for longer than `lag_ms`."""
        if self.caught_up_ms is None:
            self.caught_up_ms = boot_ms
        if self.end >= leader_end and boot_ms - self.fetched_ms <= lag_ms:
            return False
        return boot_ms - self.caught_up_ms > lag_ms


class InSyncSet:
    __slots__ = ("_asked_for", "_change", "_pending", "_was_uncertain", "committed", "elr", "recovering", "version")

    def __init__(
        self,
        isr: Collection[int],
        elr: Collection[int] = (),
        version: Version = Version(),  # noqa: B008
        *,
        recovering: bool = False,
    ) -> None:
        self.committed = frozenset(isr)
        self.elr = frozenset(elr)
        self.recovering = recovering
        """True while the partition was led by a replica that lacked committed records, and the leader has not yet said
        that it goes on from there."""
        self.version = version
        self._change = Change.NONE
        self._pending: frozenset[int] = frozenset()
        """Members of all sets that were asked for at this version and may be in force."""
        self._asked_for: frozenset[int] = frozenset()
        self._was_uncertain = False
        """True if the outcome of a request at this version is unknown."""

    @property
    def change(self) -> Change:
        return self._change

    @property
    def maximal(self) -> frozenset[int]:
        """The committed set and every replica that a change on its way may add."""
        return self.committed | self._pending

    @property
    def may_ask(self) -> bool:
        return self._change in (Change.NONE, Change.UNCERTAIN)

    def _move(self, change: Change) -> None:
        self._change = IN_SYNC_MOVES.moved(str(self.version), self._change, change)

    def image_shows(
        self, isr: Collection[int], elr: Collection[int], version: Version, *, recovering: bool = False
    ) -> None:
        """Takes the partition's row. A later revision settles every change that was asked for before."""
        if version.mod_revision <= self.version.mod_revision:
            return
        self.committed, self.elr, self.recovering = frozenset(isr), frozenset(elr), recovering
        self.version = version
        self._pending = self._asked_for = frozenset()
        self._was_uncertain = False
        self._move(Change.NONE)

    def wanted(
        self,
        leader: int,
        lags: Callable[[int], bool],
        *,
        ready: Iterable[int],
        full: Collection[int],
        lost: Collection[int],
        min_insync_replicas: int,
    ) -> frozenset[int] | None:
        """The ISR rule: the set that the leader asks for; None: nothing is to be changed.

        The set shrinks by members that lag for longer than replica.lag.time.max.ms, whose disks are `full`, or whose
        logs are `lost`. It expands by replicas that are `ready`, unless they lag. With min.insync.replicas members the
        ELR is emptied, and a lost replica leaves it. The store takes the set if it fits the image
        (cluster/planner/isr.py); brokers without a registration are dropped by the controller
        (cluster/planner/failover.py).
        """
        if not self.may_ask:
            return None
        leaving = {each for each in self.committed if each != leader and (each in lost or each in full or lags(each))}
        joining = {each for each in ready if not lags(each)}
        wanted = self.committed.difference(leaving).union(joining)
        enough = len(self.committed) - len(leaving) + len(joining) >= min_insync_replicas
        if wanted != self.committed or (enough and self.elr) or self.recovering or self.elr.intersection(lost):
            return wanted
        # A change whose outcome is unknown is settled by a write: the same one again.
        return self._asked_for if self._change is Change.UNCERTAIN else None

    def asked(self, isr: frozenset[int]) -> None:
        """Notes that a request for this set goes to the store."""
        self._was_uncertain |= self._change is Change.UNCERTAIN
        self._move(Change.ASKED)
        self._pending |= isr
        self._asked_for = isr

    def applied(self, version: Version) -> None:
        """Notes that the store has taken the change that was asked for at this version."""
        if version == self.version and self._change is Change.ASKED:
            self._move(Change.APPLIED)

    def unknown(self, version: Version) -> None:
        """Notes that the outcome of the change that was asked for at this version is unknown."""
        if version == self.version and self._change is Change.ASKED:
            self._move(Change.UNCERTAIN)

    def refused(self, version: Version) -> None:
        """Notes that the store has not taken the change that was asked for at this version. An earlier request of
        unknown outcome may still have been taken."""
        if version == self.version and self._change is Change.ASKED:
            if self._was_uncertain:
                self._move(Change.UNCERTAIN)
            else:
                self._move(Change.NONE)
                self._pending = self._asked_for = frozenset()

"""Fetch sessions (KIP-227): the broker remembers the partitions of a reader, so that a fetch names only changes.

`FetchSessions.resolve` decides the protocol's table of (session id, session epoch), in one place. Three numbers are
bounded: all sessions, the sessions of one connection, and the partitions that all sessions remember. When a connection
closes, its large sessions end: a reader that comes back begins a new session. Small sessions are kept, and are evicted
first when room is needed.
"""

import random
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, TypeAlias

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import NO_OFFSET, LeaderEpoch, Offset, TopicId
from cordwood.security.sessions import ANONYMOUS, Principal
from cordwood.wire.fetch import UNKNOWN_HIGH_WATERMARK, FetchPartition
from cordwood.wire.widths import READ_BY_ONE_CLIENT

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
NOBODY = -1
"""The connection id of a session whose reader's connection is closed."""
EVICTION_AGE_MS = 120_000

MAX_REMEMBERED = 250_000
"""The most partitions in all sessions: at some 400 bytes each, 100 MB."""
LARGE = 1_000
"""A session with more partitions ends when its reader's connection closes."""
MAX_OF_CONNECTION = 4
"""The most sessions of one connection. A client has one session at a time with each broker."""

TopicKey: TypeAlias = "str | TopicId"
TargetKey: TypeAlias = "tuple[TopicKey, int]"


class Target:
    """One partition that a reader reads: the reader's fetch offset, and the watermarks that it was last sent."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
    )

    def __init__(
        self,
        topic: TopicKey,
        partition: int,
        fetch_offset: Offset,
        max_bytes: int,
        current_leader_epoch: LeaderEpoch,
        last_fetched_epoch: LeaderEpoch,
        log_start: Offset = NO_OFFSET,
        high_watermark: int = UNKNOWN_HIGH_WATERMARK,
    ) -> None:
        """`log_start` and `high_watermark`: the values that a follower knows."""
        self.topic = topic
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start = log_start
        self.high_watermark = high_watermark
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    @property
    def key(self) -> TargetKey:
        return self.topic, self.partition

    def update(self, asked: "Target") -> None:
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch


def targets_of(topic: TopicKey, partitions: Iterable[FetchPartition]) -> list[Target]:
    """The partitions of one topic that a fetch names."""
    return [
        Target(
            topic,
            asked.partition,
            asked.fetch_offset,
            asked.max_bytes,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
            asked.log_start_offset,
            asked.high_watermark,
        )
        for asked in partitions
    ]


class FetchSession:
    __slots__ = ("connection_id", "created_ms", "epoch", "id", "last_used_ms", "principal", "targets", "uses_topic_ids")

    def __init__(
        self,
        session_id: int,
        targets: dict[TargetKey, Target],
        uses_topic_ids: bool,
        connection_id: int,
        principal: Principal,
        boot_ms: int,
    ) -> None:
        self.id = session_id
        self.principal = principal
        """The session's owner: nobody else goes on with it."""
        self.connection_id = connection_id
        """The connection that used the session last."""
        self.targets = targets
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.created_ms = boot_ms
        self.last_used_ms = boot_ms

    def served(self, key: TargetKey) -> None:
        """Fairness: a partition that returned data goes to the end of the order."""
        target = self.targets.pop(key, None)
        if target is not None:
            self.targets[key] = target


class Mode(Enum):
    FULL = "every partition is answered"
    INCREMENTAL = "only partitions with news are answered"


class FetchPlan(NamedTuple):
    """The partitions that one fetch reads, and its session (None: sessionless)."""

    targets: list[Target]
    mode: Mode
    session: FetchSession | None

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    """All sessions of a node, bounded in number and in remembered partitions."""

    def __init__(self, slots: int, seed: int, max_remembered: int = MAX_REMEMBERED) -> None:
        self._slots = slots
        self._max_remembered = max_remembered
        self._sessions: dict[int, FetchSession] = {}
        self._of_connection: dict[int, dict[int, None]] = {}
        """Ids of each connection's sessions, the session used longest ago first."""
        self.remembered = 0
        """Partitions in all sessions."""
        # Ids only have to be hard to guess by accident: a reader that comes back after a restart must not hit another
        # reader's session.
        self._ids = random.Random(seed)

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(
        self,
        session_id: int,
        epoch: int,
        asked: list[Target],
        forgotten: Iterable[TargetKey],
        uses_topic_ids: bool,
        boot_ms: int,
        connection_id: int = 0,
        principal: Principal = ANONYMOUS,
    ) -> FetchPlan:
        """Plans which partitions this request reads. Raises the top-level errors of the session protocol."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            ended = self._sessions.get(session_id)
            if ended is not None and ended.principal == principal:
                self._forget(session_id)
            if epoch == INITIAL_EPOCH and asked:
                # `key` is not called for each partition: there may be 50,000.
                targets = {(target.topic, target.partition): target for target in asked}
                session = self._create(targets, uses_topic_ids, connection_id, principal, boot_ms)
                return FetchPlan(list(targets.values()), Mode.FULL, session)
            return FetchPlan(asked, Mode.FULL, None)
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            raise ProtocolError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ProtocolError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise ProtocolError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._used_by(session, connection_id)
        return self._continue(session, asked, forgotten, boot_ms)

    def connection_closed(self, connection_id: int) -> None:
        for session_id in list(self._of_connection.get(connection_id, ())):
            session = self._sessions[session_id]
            if len(session.targets) > LARGE:
                self._forget(session_id)
            else:
                self._used_by(session, NOBODY)

    def _continue(
        self, session: FetchSession, asked: list[Target], forgotten: Iterable[TargetKey], boot_ms: int
    ) -> FetchPlan:
        before = len(session.targets)
        for target in asked:
            known = session.targets.get(target.key)
            if known is None:
                session.targets[target.key] = target
            else:
                known.update(target)
        for key in forgotten:
            session.targets.pop(key, None)
        self.remembered += len(session.targets) - before
        session.last_used_ms = boot_ms
        if not session.targets:
            self._forget(session.id)
            return FetchPlan([], Mode.FULL, None)
        if self.remembered > self._max_remembered or len(session.targets) > READ_BY_ONE_CLIENT:
            # The reader asks for all of its partitions again, and goes on without a session if there is no room.
            self._forget(session.id)
            raise ProtocolError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if session.epoch == 0x7FFFFFFF else session.epoch + 1
        return FetchPlan(list(session.targets.values()), Mode.INCREMENTAL, session)

    def _create(
        self,
        targets: dict[TargetKey, Target],
        uses_topic_ids: bool,
        connection_id: int,
        principal: Principal,
        boot_ms: int,
    ) -> FetchSession | None:
        """Creates a session; None if there is no room: the reader goes on with full fetches."""
        while len(mine := self._of_connection.get(connection_id, {})) >= MAX_OF_CONNECTION:
            self._forget(next(iter(mine)))
        while len(self._sessions) >= self._slots or self.remembered + len(targets) > self._max_remembered:
            if not self._evict(len(targets), boot_ms):
                return None
        session_id = self._ids.randint(1, 0x7FFFFFFF)
        while session_id in self._sessions:
            session_id = self._ids.randint(1, 0x7FFFFFFF)
        session = FetchSession(session_id, targets, uses_topic_ids, connection_id, principal, boot_ms)
        self._sessions[session_id] = session
        self._of_connection.setdefault(connection_id, {})[session_id] = None
        self.remembered += len(targets)
        return session

    def _used_by(self, session: FetchSession, connection_id: int) -> None:
        self._leave(session)
        session.connection_id = connection_id
        self._of_connection.setdefault(connection_id, {})[session.id] = None

    def _leave(self, session: FetchSession) -> None:
        of_connection = self._of_connection[session.connection_id]
        del of_connection[session.id]
        if not of_connection:
            del self._of_connection[session.connection_id]

    def _forget(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._leave(session)
            self.remembered -= len(session.targets)

    def _evict(self, new_size: int, boot_ms: int) -> bool:
        """Evicts a session whose reader is gone, one unused for two minutes, or a smaller one older than that."""
        orphan = next(iter(self._of_connection.get(NOBODY, ())), None)
        if orphan is not None:
            self._forget(orphan)
            return True
        oldest = min(self._sessions.values(), key=lambda session: session.last_used_ms, default=None)
        if oldest is None:
            return False
        if boot_ms - oldest.last_used_ms > EVICTION_AGE_MS:
            self._forget(oldest.id)
            return True
        smallest = min(self._sessions.values(), key=lambda session: (len(session.targets), session.created_ms))
        if len(smallest.targets) < new_size and boot_ms - smallest.created_ms > EVICTION_AGE_MS:
            self._forget(smallest.id)
            return True
        return False

"""Fetch sessions (KIP-227): the broker remembers which partitions a reader reads, so that a fetch names only changes.

The protocol's table of (session id, session epoch) is decided in `FetchSessions.resolve`, in one place.
"""

import random
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, TypeAlias

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
EVICTION_AGE_MS = 120_000

TopicKey: TypeAlias = "str | TopicId"
TargetKey: TypeAlias = "tuple[TopicKey, int]"


class Target:
    """One partition that a reader wants, where it is in it, and what it was last told."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
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
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
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


class FetchSession:
    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "targets", "uses_topic_ids")

    def __init__(self, session_id: int, targets: dict[TargetKey, Target], uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.targets = targets
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    def served(self, key: TargetKey) -> None:
        """Fairness: a partition that returned data goes to the end of the order."""
        target = self.targets.pop(key, None)
        if target is not None:
            self.targets[key] = target


class Mode(Enum):
    FULL = "every partition is answered"
    INCREMENTAL = "only partitions with news are answered"


class FetchPlan(NamedTuple):
    """What one fetch reads, and in which session (None: sessionless)."""

    targets: list[Target]
    mode: Mode
    session: FetchSession | None

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    """All sessions of a node, bounded in number."""

    def __init__(self, slots: int, seed: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}
        # Ids only have to be hard to guess by accident: a reader that comes back after a restart must not hit
        # somebody else's session.
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
        now_ms: int,
    ) -> FetchPlan:
        """What this request reads. Raises the top-level errors of the session protocol."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            targets = {target.key: target for target in asked}
            if epoch == INITIAL_EPOCH and targets:
                session = self._create(targets, uses_topic_ids, now_ms)
                return FetchPlan(list(targets.values()), Mode.FULL, session)
            return FetchPlan(asked, Mode.FULL, None)
        session = self._sessions.get(session_id)
        if session is None:
            raise ProtocolError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ProtocolError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise ProtocolError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, asked, forgotten, now_ms)

    def _continue(
        self, session: FetchSession, asked: list[Target], forgotten: Iterable[TargetKey], now_ms: int
    ) -> FetchPlan:
        for target in asked:
            known = session.targets.get(target.key)
            if known is None:
                session.targets[target.key] = target
            else:
                known.update(target)
        for key in forgotten:
            session.targets.pop(key, None)
        session.last_used_ms = now_ms
        if not session.targets:
            del self._sessions[session.id]
            return FetchPlan([], Mode.FULL, None)
        session.epoch = 1 if session.epoch == 0x7FFFFFFF else session.epoch + 1
        return FetchPlan(list(session.targets.values()), Mode.INCREMENTAL, session)

    def _create(self, targets: dict[TargetKey, Target], uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        """A new session, or None where there is no room: the reader goes on with full fetches."""
        if len(self._sessions) >= self._slots and not self._evict(len(targets), now_ms):
            return None
        session_id = self._ids.randint(1, 0x7FFFFFFF)
        while session_id in self._sessions:
            session_id = self._ids.randint(1, 0x7FFFFFFF)
        session = self._sessions[session_id] = FetchSession(session_id, targets, uses_topic_ids, now_ms)
        return session

    def _evict(self, new_size: int, now_ms: int) -> bool:
        """Makes room: a session unused for two minutes, or a smaller one that has existed that long."""
        oldest = min(self._sessions.values(), key=lambda session: session.last_used_ms, default=None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > EVICTION_AGE_MS:
            del self._sessions[oldest.id]
            return True
        smallest = min(self._sessions.values(), key=lambda session: (len(session.targets), session.created_ms))
        if len(smallest.targets) < new_size and now_ms - smallest.created_ms > EVICTION_AGE_MS:
            del self._sessions[smallest.id]
            return True
        return False

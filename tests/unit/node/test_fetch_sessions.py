"""Fetch sessions: the table of (session id, epoch) that KIP-227 gives, and the bounds on what is kept."""

import pytest

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import NO_LEADER_EPOCH, Offset
from cordwood.node.requests.fetch_sessions import (
    EVICTION_AGE_MS,
    LARGE,
    MAX_OF_CONNECTION,
    FetchPlan,
    FetchSessions,
    Mode,
    Target,
)


def target(partition: int, offset: int = 0, topic: str = "t") -> Target:
    return Target(topic, partition, Offset(offset), 1024, NO_LEADER_EPOCH, NO_LEADER_EPOCH)


def resolve(sessions: FetchSessions, session_id: int, epoch: int, *asked: Target, now_ms: int = 0) -> FetchPlan:
    return sessions.resolve(session_id, epoch, list(asked), [], False, now_ms)


def error_of(sessions: FetchSessions, session_id: int, epoch: int, uses_topic_ids: bool = False) -> ErrorCode:
    with pytest.raises(ProtocolError) as refusal:
        sessions.resolve(session_id, epoch, [], [], uses_topic_ids, 0)
    return refusal.value.code


def test_a_fetch_without_a_session_is_answered_in_full_and_leaves_nothing_behind() -> None:
    sessions = FetchSessions(10, seed=1)
    plan = resolve(sessions, 0, -1, target(0))
    assert (plan.mode, plan.session_id, len(sessions)) == (Mode.FULL, 0, 0)


def test_a_session_remembers_its_partitions_and_counts_its_epochs() -> None:
    sessions = FetchSessions(10, seed=1)
    session_id = resolve(sessions, 0, 0, target(0), target(1)).session_id
    assert session_id > 0
    plan = resolve(sessions, session_id, 1, target(1, offset=5))
    assert plan.mode is Mode.INCREMENTAL
    assert [(t.partition, t.fetch_offset) for t in plan.targets] == [(0, 0), (1, 5)]
    assert resolve(sessions, session_id, 2).targets[1].fetch_offset == 5
    assert error_of(sessions, session_id, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert error_of(sessions, session_id, 3, uses_topic_ids=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert error_of(sessions, session_id + 1, 3) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_after_the_last_epoch_comes_one() -> None:
    sessions = FetchSessions(10, seed=1)
    plan = resolve(sessions, 0, 0, target(0))
    assert plan.session is not None
    plan.session.epoch = 0x7FFFFFFF
    resolve(sessions, plan.session_id, 0x7FFFFFFF)
    assert plan.session.epoch == 1


def test_forgetting_every_partition_closes_the_session() -> None:
    sessions = FetchSessions(10, seed=1)
    session_id = resolve(sessions, 0, 0, target(0)).session_id
    plan = sessions.resolve(session_id, 1, [], [("t", 0)], False, 0)
    assert (plan.session_id, plan.targets, len(sessions)) == (0, [], 0)


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_with_an_id_closes_that_session(epoch: int) -> None:
    sessions = FetchSessions(10, seed=1)
    session_id = resolve(sessions, 0, 0, target(0)).session_id
    resolve(sessions, session_id, epoch, target(0))
    assert error_of(sessions, session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_that_returned_data_is_read_last_the_next_time() -> None:
    sessions = FetchSessions(10, seed=1)
    plan = resolve(sessions, 0, 0, target(0), target(1), target(2))
    assert plan.session is not None
    plan.session.served(("t", 0))
    assert [t.partition for t in resolve(sessions, plan.session_id, 1).targets] == [1, 2, 0]


def test_sessions_are_bounded_and_only_stale_or_small_old_ones_give_way() -> None:
    sessions = FetchSessions(1, seed=1)
    first = resolve(sessions, 0, 0, target(0), now_ms=0).session_id
    assert resolve(sessions, 0, 0, target(0), target(1), now_ms=EVICTION_AGE_MS).session_id == 0
    resolve(sessions, first, 1, now_ms=EVICTION_AGE_MS + 1)
    same_size = resolve(sessions, 0, 0, target(0), now_ms=EVICTION_AGE_MS + 1)
    assert same_size.session_id == 0
    larger = resolve(sessions, 0, 0, target(0), target(1), now_ms=EVICTION_AGE_MS + 1)
    assert larger.session_id > 0
    stale = resolve(sessions, 0, 0, target(0), now_ms=2 * EVICTION_AGE_MS + 2)
    assert stale.session_id > 0
    assert len(sessions) == 1


def test_sessions_remember_a_bounded_number_of_partitions_together() -> None:
    sessions = FetchSessions(10, seed=1, max_remembered=5)
    first = sessions.resolve(0, 0, [target(0), target(1), target(2)], [], False, 0, 1)
    assert sessions.resolve(0, 0, [target(0), target(1), target(2)], [], False, 0, 2).session_id == 0
    assert sessions.remembered == 3
    more = [target(number) for number in range(3, 6)]
    with pytest.raises(ProtocolError) as refusal:
        sessions.resolve(first.session_id, 1, more, [], False, 0, 1)
    assert refusal.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (sessions.remembered, len(sessions)) == (0, 0)


def test_a_connection_has_few_sessions_and_loses_the_one_used_longest_ago() -> None:
    sessions = FetchSessions(100, seed=1)
    ids = [sessions.resolve(0, 0, [target(0)], [], False, 0, 1).session_id for _ in range(MAX_OF_CONNECTION + 1)]
    assert len(sessions) == sessions.remembered == MAX_OF_CONNECTION
    assert error_of(sessions, ids[0], 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_large_session_ends_with_its_connection_and_a_small_one_makes_room_first() -> None:
    sessions = FetchSessions(2, seed=1)
    large = [target(number) for number in range(LARGE + 1)]
    gone = sessions.resolve(0, 0, large, [], False, 0, 1).session_id
    small = sessions.resolve(0, 0, [target(0)], [], False, 0, 1).session_id
    sessions.connection_closed(1)
    assert error_of(sessions, gone, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.resolve(small, 1, [], [], False, 0, 2).session_id == small
    sessions.connection_closed(2)
    others = [sessions.resolve(0, 0, [target(0)], [], False, 0, 3).session_id for _ in range(2)]
    assert all(others)
    assert error_of(sessions, small, 2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

"""The classic group protocol as its members live it: rounds, shares, absences, returns."""

from tests.unit.groups.stage import (
    GROUP,
    LIMITS,
    REBALANCE_MS,
    SESSION_MS,
    Actor,
    Stage,
    form_group,
    share_work,
    subscription,
)

from cordwood.groups.classic.group import State
from cordwood.model.errors import ErrorCode


def group_of(stage: Stage, *names: str) -> list[Actor]:
    actors = [Actor(stage, name) for name in names]
    first = actors[0]
    first.join()
    for actor in actors[1:]:
        actor.join()
        first_waits = stage.state is State.PREPARING_REBALANCE
        if first_waits:
            for known in actors[: actors.index(actor)]:
                known.ask_to_join()
    share_work(*actors)
    assert stage.state is State.STABLE
    return actors


def test_a_newcomer_is_given_an_id_and_takes_a_place_when_it_comes_back_with_it() -> None:
    stage = Stage()
    actor = Actor(stage, "a")
    actor.ask_to_join()
    assert [answer.error for answer in actor.joins] == [ErrorCode.MEMBER_ID_REQUIRED]
    assert actor.member_id == "a-1"
    assert not stage.group.members
    actor.ask_to_join()
    assert actor.joins[-1].error is ErrorCode.NONE
    assert actor.joins[-1].generation == 1
    assert actor.joins[-1].members == (("a-1", None, subscription("orders")),)


def test_an_old_client_joins_in_one_request() -> None:
    actor = Actor(Stage(), "a", version=3)
    actor.ask_to_join()
    assert actor.joins[-1].error is ErrorCode.NONE
    assert actor.leads


def test_an_id_that_is_not_used_within_the_session_timeout_is_forgotten_and_so_is_the_group() -> None:
    stage = Stage()
    actor = Actor(stage, "a")
    actor.ask_to_join()
    stage.pass_time(SESSION_MS)
    assert stage.state is State.DEAD
    actor.ask_to_join()
    assert actor.joins[-1].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_followers_get_their_share_when_the_leader_brings_it() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    assert [a.syncs[-1].assignment, b.syncs[-1].assignment] == [b"a", b"b"]
    assert a.heartbeat() is ErrorCode.NONE
    b.sync()
    assert b.syncs[-1].assignment == b"b"


def test_a_follower_waits_for_the_leader() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    a.ask_to_join()
    b.ask_to_join()
    answers = len(b.syncs)
    b.sync()
    assert len(b.syncs) == answers
    a.sync({a.member_id: b"1", b.member_id: b"2"})
    assert b.syncs[-1].assignment == b"2"


def test_a_third_member_makes_the_others_join_again() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    c = Actor(stage, "c")
    c.join()
    assert a.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    a.sync()
    assert a.syncs[-1].error is ErrorCode.REBALANCE_IN_PROGRESS
    a.ask_to_join()
    assert c.joins[-1].error is ErrorCode.MEMBER_ID_REQUIRED, "the round waits for b"
    b.ask_to_join()
    assert {actor.joins[-1].generation for actor in (a, b, c)} == {3}


def test_who_does_not_join_again_within_the_rebalance_timeout_is_out() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    c = Actor(stage, "c")
    c.join()
    a.ask_to_join()
    for _ in range(5):
        stage.pass_time(SESSION_MS // 2)
        assert b.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    stage.pass_time(REBALANCE_MS)
    assert c.joins[-1].generation == 3
    assert b.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_is_not_heard_of_within_its_session_timeout_is_out() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    stage.pass_time(SESSION_MS - 1)
    assert a.heartbeat() is ErrorCode.NONE
    stage.pass_time(1)
    assert a.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    a.ask_to_join()
    assert [member_id for member_id, _, _ in a.joins[-1].members] == [a.member_id]
    assert b.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_join_is_with_us_is_not_late() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    a.ask_to_join()
    for _ in range(4):
        stage.pass_time(SESSION_MS // 2)
        b.heartbeat()
    assert a.member_id in stage.group.members


def test_a_leader_that_does_not_bring_the_shares_is_out() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    a.ask_to_join()
    b.ask_to_join()
    b.sync()
    for _ in range(7):
        stage.pass_time(SESSION_MS // 2)
        a.heartbeat()
    assert b.syncs[-1].error is ErrorCode.REBALANCE_IN_PROGRESS
    b.ask_to_join()
    assert b.leads


def test_the_first_round_waits_for_more_and_then_a_little_longer() -> None:
    stage = Stage(LIMITS._replace(initial_rebalance_delay_ms=100))
    a, b = Actor(stage, "a"), Actor(stage, "b")
    a.join()
    stage.pass_time(99)
    b.join()
    stage.pass_time(99)
    assert stage.state is State.PREPARING_REBALANCE
    stage.pass_time(2)
    assert [a.joins[-1].generation, b.joins[-1].generation] == [1, 1]


def test_a_member_that_leaves_gives_its_share_back_at_once() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    assert stage.leave((a.member_id, None), ("nobody", None)) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert b.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    b.ask_to_join()
    assert b.leads
    assert a.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_one_leaves_an_empty_group_that_the_log_knows() -> None:
    stage = Stage()
    (a,) = group_of(stage, "a")
    stage.leave((a.member_id, None))
    assert stage.state is State.EMPTY
    stage.restart()
    assert stage.state is State.EMPTY
    assert stage.group.generation == 2


def test_an_old_generation_is_told_so() -> None:
    stage = Stage()
    (a,) = group_of(stage, "a")
    a.generation = 0
    assert a.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    assert a.commit(5) is ErrorCode.ILLEGAL_GENERATION
    a.sync()
    assert a.syncs[-1].error is ErrorCode.ILLEGAL_GENERATION


def test_a_lost_answer_to_a_join_is_given_again() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    b.ask_to_join()
    assert b.joins[-1].generation == a.generation
    assert stage.state is State.STABLE


def test_a_leader_that_joins_a_stable_group_begins_a_round() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    assert a.leads
    a.ask_to_join()
    assert b.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_join_that_is_repeated_while_it_waits_answers_the_first() -> None:
    stage = Stage()
    a, _ = group_of(stage, "a", "b")
    a.ask_to_join()
    a.ask_to_join()
    assert a.joins[-1].error is ErrorCode.REBALANCE_IN_PROGRESS


# Protocols


def test_members_vote_for_a_protocol_that_all_know() -> None:
    stage = Stage()
    a = Actor(stage, "a", protocols=(("sticky", b""), ("range", b"")))
    b = Actor(stage, "b", protocols=(("roundrobin", b""), ("range", b"")))
    a.join()
    b.join()
    a.ask_to_join()
    assert a.joins[-1].protocol == "range"


def test_a_member_that_shares_no_protocol_is_refused() -> None:
    stage = Stage()
    group_of(stage, "a")
    other_assignor = Actor(stage, "b", protocols=(("roundrobin", b""),))
    other_type = Actor(stage, "c")
    other_type.protocol_type = "connect"
    nothing = Actor(stage, "d", protocols=())
    for actor in (other_assignor, other_type, nothing):
        actor.ask_to_join()
        assert actor.joins[-1].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# Static members


def static_pair(stage: Stage) -> tuple[Actor, Actor]:
    a, b = Actor(stage, "a", instance_id="one"), Actor(stage, "b", instance_id="two")
    a.join()
    b.join()
    a.ask_to_join()
    share_work(a, b)
    return a, b


def test_a_static_member_that_restarts_gets_its_share_back_without_a_round() -> None:
    stage = Stage()
    a, b = static_pair(stage)
    again = Actor(stage, "b2", instance_id="two")
    again.join()
    assert again.joins[-1].error is ErrorCode.NONE
    assert again.generation == b.generation
    again.sync()
    assert again.syncs[-1].assignment == b"b"
    assert a.heartbeat() is ErrorCode.NONE
    stage.restart()
    assert again.heartbeat() is ErrorCode.NONE


def test_whoever_has_the_old_id_of_a_static_member_is_fenced() -> None:
    stage = Stage()
    _, b = static_pair(stage)
    again = Actor(stage, "b2", instance_id="two")
    again.join()
    assert b.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert b.commit(1) is ErrorCode.FENCED_INSTANCE_ID
    b.sync()
    b.ask_to_join()
    assert b.syncs[-1].error is ErrorCode.FENCED_INSTANCE_ID
    assert b.joins[-1].error is ErrorCode.FENCED_INSTANCE_ID
    assert stage.leave((b.member_id, "two")) == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_member_keeps_the_instance_id_that_it_joined_with() -> None:
    stage = Stage()
    a, b = static_pair(stage)
    known = dict(stage.shard.groups[GROUP].static_members)
    for instance_id, refusal in (("three", ErrorCode.UNKNOWN_MEMBER_ID), ("one", ErrorCode.FENCED_INSTANCE_ID)):
        b.instance_id = instance_id
        b.ask_to_join()
        assert b.joins[-1].error is refusal
    assert stage.shard.groups[GROUP].static_members == known == {"one": a.member_id, "two": b.member_id}


def test_a_leader_that_restarts_does_not_assign_anew() -> None:
    stage = Stage()
    a, _ = static_pair(stage)
    newer = Actor(stage, "a2", instance_id="one")
    newer.join()
    assert newer.joins[-1].skip_assignment
    assert len(newer.joins[-1].members) == 2
    older = Actor(stage, "a3", instance_id="one", version=8)
    older.join()
    assert older.joins[-1].leader == newer.member_id
    assert not older.joins[-1].members
    older.sync()
    assert older.syncs[-1].assignment == b"a"
    assert a.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_comes_back_with_other_topics_begins_a_round() -> None:
    stage = Stage()
    a, _ = static_pair(stage)
    again = Actor(stage, "b2", instance_id="two", protocols=(("range", subscription("orders", "refunds")),))
    again.join()
    assert a.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_changing_user_data_beside_the_same_topics_begins_no_round() -> None:
    stage = Stage()
    a, _ = static_pair(stage)
    again = Actor(stage, "b2", instance_id="two", protocols=(("range", subscription("orders", user_data=b"x")),))
    again.join()
    assert again.joins[-1].error is ErrorCode.NONE
    assert a.heartbeat() is ErrorCode.NONE


def test_an_administrator_takes_a_static_member_out_by_its_instance_id() -> None:
    stage = Stage()
    a, b = static_pair(stage)
    assert stage.leave(("", "two"), ("", "three")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert b.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert a.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_misses_a_round_keeps_its_place_until_its_session_ends() -> None:
    stage = Stage()
    a = Actor(stage, "a")
    b = Actor(stage, "b", instance_id="two", session_ms=10_000)
    a.join()
    b.join()
    a.ask_to_join()
    share_work(a, b)
    a.ask_to_join()
    stage.pass_time(REBALANCE_MS)
    assert a.generation == 3
    assert b.member_id in stage.group.members


# Limits


def test_a_group_has_so_many_members_and_no_more() -> None:
    stage = Stage()
    actors = [Actor(stage, str(number)) for number in range(LIMITS.max_size + 1)]
    for actor in actors:
        actor.ask_to_join()
    assert [actor.joins[-1].error for actor in actors[-2:]] == [
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def test_session_timeouts_and_metadata_are_bounded() -> None:
    stage = Stage()
    short, long = Actor(stage, "a", session_ms=9), Actor(stage, "b", session_ms=10_001)
    large = Actor(stage, "c", protocols=(("range", b"x" * 10_001),))
    many = Actor(stage, "d", protocols=(("range", b""),) * 101)
    named = Actor(stage, "e", instance_id="i" * 1025)
    for actor in (short, long, large, many, named):
        actor.ask_to_join()
    assert [actor.joins[-1].error for actor in (short, long)] == [ErrorCode.INVALID_SESSION_TIMEOUT] * 2
    assert [actor.joins[-1].error for actor in (large, many, named)] == [ErrorCode.INVALID_REQUEST] * 3
    assert stage.state is State.DEAD, "a refused request leaves no group behind"


def test_shares_that_do_not_fit_into_a_record_fail_the_sync() -> None:
    stage = Stage()
    a = Actor(stage, "a")
    a.join()
    a.sync({a.member_id: b"x" * 10_001})
    assert a.syncs[-1].error is ErrorCode.UNKNOWN_SERVER_ERROR


# The log


def test_members_go_on_after_a_restart_of_the_broker_without_a_round() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    stage.restart()
    stage.pass_time(SESSION_MS - 1)
    assert [a.heartbeat(), b.heartbeat()] == [ErrorCode.NONE, ErrorCode.NONE]
    b.sync()
    assert b.syncs[-1].assignment == b"b"


def test_what_members_said_last_counts_after_a_restart() -> None:
    """The log has several generations; the first one has other subscriptions."""
    stage = Stage()
    actor = Actor(stage, "a")
    form_group(actor)
    actor.protocols = (("range", subscription("refunds")), ("sticky", b""))
    actor.session_ms = 2 * SESSION_MS
    actor.ask_to_join()
    share_work(actor)
    (member,) = stage.group.members.values()
    assert member.protocols == actor.protocols
    stage.restart()
    (member,) = stage.group.members.values()
    assert member.protocols == (("range", subscription("refunds")),)
    assert member.session_timeout_ms == 2 * SESSION_MS
    assert not stage.group.subscribes_to("orders")


def test_members_that_do_not_come_back_after_a_restart_are_out() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    stage.restart()
    stage.pass_time(SESSION_MS // 2)
    a.heartbeat()
    stage.pass_time(SESSION_MS // 2)
    assert a.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert b.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_round_that_the_log_does_not_know_is_forgotten_with_the_broker() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    a.ask_to_join()
    b.ask_to_join()
    stage.restart()
    assert a.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    a.ask_to_join()
    b.ask_to_join()
    assert a.generation == b.generation == stage.group.generation


def test_shares_that_did_not_reach_the_log_are_given_to_nobody() -> None:
    stage = Stage()
    a, b = group_of(stage, "a", "b")
    a.ask_to_join()
    b.ask_to_join()
    b.sync()
    stage.disk_is_full = True
    a.sync({a.member_id: b"new", b.member_id: b"new"})
    assert [a.syncs[-1].error, b.syncs[-1].error] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    stage.disk_is_full = False
    assert a.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    a.ask_to_join()
    b.ask_to_join()
    share_work(a, b)
    assert stage.state is State.STABLE


# Unknown names


def test_nobody_is_a_member_of_a_group_that_is_not_there() -> None:
    stage = Stage()
    ghost = Actor(stage, "ghost")
    ghost.member_id, ghost.generation = "ghost-1", 3
    ghost.ask_to_join()
    ghost.sync()
    assert ghost.joins[-1].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert ghost.syncs[-1].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert ghost.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert ghost.commit(1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.leave(("ghost-1", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert GROUP not in stage.shard.groups


def test_form_group_gives_every_member_its_own_share() -> None:
    stage = Stage(LIMITS._replace(initial_rebalance_delay_ms=50))
    actors = [Actor(stage, name) for name in "abc"]
    form_group(*actors)
    assert [actor.syncs[-1].assignment for actor in actors] == [b"a", b"b", b"c"]

"""The security trail without files: counted repeats, and the lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cordwood.model.errors import ErrorCode
from cordwood.model.operations import Operation, ResourceKind
from cordwood.security.trail.events import LONGEST_TEXT, Event, Told, What, cut
from cordwood.security.trail.ocsf import line, line_of_lost
from cordwood.security.trail.repeats import OTHERS, Repeats

REFUSAL = Event(
    What.REFUSAL,
    "User:mallory",
    "10.0.0.9",
    "USERS",
    "Produce",
    Operation.WRITE,
    ResourceKind.TOPIC,
    "payroll",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "the right is missing: Write of the topic",
)
CHANGE = REFUSAL._replace(
    what=What.CHANGE, action="DeleteTopics", operation=Operation.DELETE, error=ErrorCode.NONE, words="all of it"
)
STRANGER = Event(What.FAILED_LOG_IN, "User:admin", "10.0.0.9", "USERS", "PLAIN")
LOG_IN = Event(What.LOG_IN, "User:alice", "10.0.0.9", "USERS", "SCRAM-SHA-256")


def parsed(event: Event, times: int = 1) -> dict[str, Any]:
    written = line(Told(event, times, 1_000, 3_000), 7)
    assert written.count(b"\n") == 1
    made = json.loads(written)
    assert isinstance(made, dict)
    return made


def test_the_first_event_is_told_and_others_of_its_window_are_counted() -> None:
    repeats = Repeats(window_ms=100)
    assert repeats.is_first(REFUSAL, 1_000)
    assert [repeats.is_first(REFUSAL._replace(name=f"topic-{time}"), time) for time in (1_010, 1_020)] == [False, False]
    assert repeats.ended(1_099) == []
    assert repeats.ended(1_100) == [Told(REFUSAL, 2, 1_010, 1_020, ("topic-1010", "topic-1020"))]
    assert len(repeats) == 0
    assert repeats.is_first(REFUSAL, 1_200)


def test_a_first_refusal_does_not_hide_the_names_of_the_next_ones() -> None:
    repeats = Repeats(window_ms=100)
    for name in ("harmless", "payroll", "payroll", *"abcdefgh"):
        repeats.is_first(REFUSAL._replace(name=name), 0)
    (told,) = repeats.ended(None)
    assert (told.times, told.names) == (10, ("payroll", "a", "b", "c", "d", OTHERS))
    made = json.loads(line(told, 7))
    assert [each["name"] for each in made["resources"]] == list(told.names)
    assert made["message"].endswith("of the topic payroll, a, b, c, d, (others)")


def test_a_window_without_repeats_ends_without_a_line() -> None:
    repeats = Repeats(window_ms=100)
    assert repeats.is_first(REFUSAL, 0)
    assert repeats.next_end_ms == 100
    assert repeats.ended(None) == []
    assert repeats.next_end_ms is None


@pytest.mark.parametrize(
    "other",
    [
        {"principal": "User:eve"},
        {"host": "10.0.0.10"},
        {"listener": "OTHERS"},
        {"operation": Operation.READ},
        {"kind": ResourceKind.GROUP},
        {"what": What.DRY_REFUSAL},
    ],
    ids=lambda other: next(iter(other)),
)
def test_events_that_differ_have_windows_of_their_own(other: dict[str, Any]) -> None:
    repeats = Repeats(window_ms=100)
    assert repeats.is_first(REFUSAL, 0)
    assert repeats.is_first(REFUSAL._replace(**other), 0)


def test_windows_are_bounded_and_no_event_is_forgotten() -> None:
    repeats = Repeats(window_ms=100, most=10)
    told = sum(repeats.is_first(REFUSAL._replace(principal=f"User:{number}"), number) for number in range(1_000))
    assert told == 10
    assert len(repeats) == 11
    (others,) = repeats.ended(None)
    assert (others.event.principal, others.event.host, others.times) == (OTHERS, OTHERS, 990)
    assert (others.first_ms, others.last_ms) == (10, 999)


def test_a_flood_of_made_up_names_leaves_the_users_their_own_windows() -> None:
    repeats = Repeats(window_ms=100, most=100)
    for number in range(1_000):
        repeats.is_first(STRANGER._replace(principal=f"User:{number}", host=f"10.0.1.{number % 20}"), 0)
    assert repeats.is_first(LOG_IN, 1)
    assert repeats.is_first(REFUSAL, 1)
    assert sum(told.times for told in repeats.ended(None)) == 1_000 - 50
    assert repeats.is_first(STRANGER, 200)


def test_one_address_of_strangers_leaves_windows_to_others() -> None:
    repeats = Repeats(window_ms=100, most=100)
    told = sum(repeats.is_first(STRANGER._replace(principal=f"User:{number}"), 0) for number in range(1_000))
    assert told == 5
    assert repeats.is_first(STRANGER._replace(host="10.0.0.10"), 0)
    (others,) = repeats.ended(None)
    assert (others.event.principal, others.event.host, others.times) == (OTHERS, STRANGER.host, 995)


def test_a_refusal_is_an_api_activity_of_its_principal_that_was_denied() -> None:
    made = parsed(REFUSAL)
    assert (made["class_uid"], made["activity_id"], made["type_uid"]) == (6003, 3, 600303)
    assert (made["status_id"], made["action_id"], made["status_code"]) == (2, 2, "TOPIC_AUTHORIZATION_FAILED")
    assert made["actor"]["user"] == {"name": "mallory", "uid": "User:mallory"}
    assert (made["src_endpoint"]["ip"], made["dst_endpoint"]["svc_name"]) == ("10.0.0.9", "USERS")
    assert made["api"]["operation"] == "Produce"
    assert made["resources"] == [{"type": "topic", "name": "payroll"}]
    assert made["message"] == "User:mallory refused: Write of the topic payroll"
    assert "start_time" not in made


def test_counted_events_say_how_many_and_from_when_to_when() -> None:
    made = parsed(REFUSAL, times=40)
    assert (made["count"], made["start_time"], made["end_time"], made["time"]) == (40, 1_000, 3_000, 3_000)


def test_a_change_succeeded_and_says_what_changed() -> None:
    made = parsed(CHANGE)
    assert (made["status_id"], made["action_id"], made["activity_name"]) == (1, 1, "Delete")
    assert made["resources"] == [{"type": "topic", "name": "payroll", "data": {"change": "all of it"}}]


def test_a_dry_run_is_told_as_observed() -> None:
    made = parsed(REFUSAL._replace(what=What.DRY_REFUSAL, error=ErrorCode.NONE))
    assert (made["status_id"], made["action"]) == (1, "Observed")
    assert "would be refused" in made["message"]


@pytest.mark.parametrize("what", [What.LOG_IN, What.FAILED_LOG_IN, What.FAILED_HANDSHAKE])
def test_log_ins_are_authentications(what: What) -> None:
    made = parsed(LOG_IN._replace(what=what))
    succeeded = what is What.LOG_IN
    assert (made["class_uid"], made["type_uid"], made["status_id"]) == (3002, 300201, 1 if succeeded else 2)
    assert (made["user"]["uid"], made["auth_protocol"]) == ("User:alice", "SCRAM-SHA-256")


def test_texts_of_peers_cannot_make_a_second_line_or_a_large_one() -> None:
    name = 'a"}\n{"class_uid":1' + "\udcff" + "é" * 10
    assert parsed(REFUSAL._replace(name=name))["resources"][0]["name"].startswith('a"}\n{')
    assert line(Told(REFUSAL._replace(name="\x9b2J\u202e\u2028"), 1, 0, 0), 7).isascii(), "no terminal is steered"
    assert len(cut("x" * 30_000)) == LONGEST_TEXT + 1


def test_lost_events_have_a_line_with_their_number() -> None:
    made = json.loads(line_of_lost(12, 1_000, 2_000, 7))
    assert (made["count"], made["start_time"], made["status_id"]) == (12, 1_000, 2)
    assert "12 events are lost" in made["status_detail"]

"""Random schedules of requests and changing rights: no answer gives or takes what its principal has no right to."""

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from simulation.rights_game import play
from tests.seeds import SOAKING, seeds
from tests.simulation.sabotage import Patch, assert_found_out

from cordwood.node.handlers.records import fetch
from cordwood.node.handlers.records.client_reads import ClientReads
from cordwood.node.requests.access import Asking
from cordwood.security.access_rules import AccessRules
from cordwood.security.sessions import Session
from cordwood.wire.apis import ApiKey

SEEDS = int(os.environ.get("CORDWOOD_SIM_SEEDS", "4"))

played = cache(play)
"""A game is played once, and looked at by several tests."""


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_nobody_gets_or_does_what_its_rights_do_not_allow(seed: int) -> None:
    outcome = played(seed)
    if not SOAKING:
        assert outcome.given > 10
        assert outcome.refused > 10
        assert outcome.revisions > 5
        assert outcome.too_late > 0


def test_the_same_seed_plays_the_same_game() -> None:
    assert play(3) == played(3)


# Who guards the guards


def does_not_ask(patch: Patch, key: ApiKey) -> None:
    """A handler that answers whoever asks."""
    may, may_see_topic = Asking.may, Asking.may_see_topic

    def everybody_may(judge: Asking, *question: Any) -> bool:
        return judge._key == key or may(judge, *question)

    patch.setattr(Asking, "may", everybody_may)
    patch.setattr(Asking, "may_see_topic", lambda judge, name: judge._key == key or may_see_topic(judge, name))


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.INIT_PRODUCER_ID,
    ],
    ids=lambda key: key.name,
)
def test_a_handler_that_does_not_ask_is_found_out(monkeypatch: Patch, key: ApiKey) -> None:
    does_not_ask(monkeypatch, key)
    assert_found_out(play, found="against the rules")


def answers_after_the_end_of_a_session(patch: Patch) -> None:
    patch.setattr(Session, "is_over", lambda session, now_ms: False)


def keeps_decisions_of_earlier_rules(patch: Patch) -> None:
    def changed(rules: AccessRules) -> None:
        rules.revision += 1

    patch.setattr(AccessRules, "_changed", changed)


def believes_whoever_passes_for_a_follower(patch: Patch) -> None:
    patch.setattr(fetch, "check_broker", lambda *question: None)


def does_not_judge_waiting_fetches_again(patch: Patch) -> None:
    patch.setattr(ClientReads, "rules_changed", lambda reads: False)


def lets_a_denial_be_outvoted(patch: Patch) -> None:
    real = AccessRules._decide

    def decide(rules: AccessRules, *question: Any) -> Any:
        decision = real(rules, *question)
        return decision._replace(allowed=decision.allowed or decision.rule is not None)

    patch.setattr(AccessRules, "_decide", decide)


@pytest.mark.parametrize(
    "switch",
    [
        answers_after_the_end_of_a_session,
        keeps_decisions_of_earlier_rules,
        believes_whoever_passes_for_a_follower,
        does_not_judge_waiting_fetches_again,
        lets_a_denial_be_outvoted,
    ],
    ids=lambda switch: switch.__name__,
)
def test_a_broker_with_a_hole_is_found_out(monkeypatch: Patch, switch: Callable[[Patch], None]) -> None:
    switch(monkeypatch)
    telling = 24 if switch is does_not_judge_waiting_fetches_again else 0
    assert_found_out(play, found="against the rules|after the end of its session", telling=telling)

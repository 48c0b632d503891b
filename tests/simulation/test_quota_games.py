"""Random schedules of clients over their quotas: each is held back for just the time that its use asks for."""

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from simulation.quota_game import play
from tests.seeds import SOAKING, seeds
from tests.simulation.sabotage import Patch, assert_found_out

from cordwood.model.quotas import Holding, holding
from cordwood.node.quotas.allowance import Allowance
from cordwood.node.quotas.client_quotas import ClientQuotas

SEEDS = int(os.environ.get("CORDWOOD_SIM_SEEDS", "2"))

played = cache(play)
"""A game is played once, and looked at by several tests."""


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_clients_are_held_back_for_what_they_used_and_for_no_more(seed: int) -> None:
    outcome = played(seed)
    if not SOAKING:
        assert outcome.throttled > 10
        assert outcome.free > 10


# Who guards the guards


def goes_on_with_the_quotas_of_before(patch: Patch) -> None:
    real = ClientQuotas.image_changed

    def image_changed(quotas: ClientQuotas) -> None:
        kept = dict(quotas._held)
        real(quotas)
        quotas._held.update(kept)

    patch.setattr(ClientQuotas, "image_changed", image_changed)


def forgets_what_was_used_when_a_quota_changes(patch: Patch) -> None:
    real = ClientQuotas.image_changed

    def image_changed(quotas: ClientQuotas) -> None:
        quotas._allowances.clear()
        real(quotas)

    patch.setattr(ClientQuotas, "image_changed", image_changed)


def lets_all_share_the_quota_that_each_has(patch: Patch) -> None:
    def shared(*question: Any) -> Holding | None:
        held = holding(*question)
        return None if held is None else held._replace(shared_by=("", ""))

    patch.setattr(f"{ClientQuotas.__module__}.holding", shared)


def saves_up_without_a_bound(patch: Patch) -> None:
    def use(allowance: Allowance, amount: float, now_ms: int) -> int:
        allowance._paid_ms += amount / allowance.per_ms
        return allowance.debt_ms(now_ms)

    patch.setattr(Allowance, "use", use)


def tells_and_does_not_hold_back(patch: Patch) -> None:
    patch.setattr(ClientQuotas, "_hold_back", lambda *how: None)


@pytest.mark.parametrize(
    "switch",
    [
        goes_on_with_the_quotas_of_before,
        forgets_what_was_used_when_a_quota_changes,
        lets_all_share_the_quota_that_each_has,
        saves_up_without_a_bound,
        tells_and_does_not_hold_back,
    ],
    ids=lambda switch: switch.__name__,
)
def test_a_broker_that_counts_wrongly_is_found_out(monkeypatch: Patch, switch: Callable[[Patch], None]) -> None:
    switch(monkeypatch)
    assert_found_out(play, found="back for|is not read for")

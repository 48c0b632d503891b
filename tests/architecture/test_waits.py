"""The helper with which tests wait gives the answer that came true, and says what it saw last where none did."""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests import deadline
from tests.deadline import eventually, eventually_here


def here(ask: Callable[[], object], **wanted: Any) -> object:
    return asyncio.run(eventually_here(ask, **wanted))


WAYS = [eventually, here]


@pytest.mark.parametrize("wait", WAYS)
def test_the_first_true_answer_or_the_wanted_one_is_given(wait: Callable[..., object]) -> None:
    answers = iter([0, "", "first", "second"])
    assert wait(lambda: next(answers)) == "first"
    assert wait(iter([3, 2, 1, 0]).__next__, to_be=0) == 0


@pytest.mark.parametrize("wait", [partial(eventually, within_s=0), here])
def test_a_wait_in_vain_says_what_was_seen_last(wait: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "WITHIN_S", 0)
    wanted = "waited in vain for leaders, wanted [1, 2, 3]; last seen: [1, 3]"
    with pytest.raises(AssertionError, match=re.escape(wanted)):
        wait(lambda: [1, 3], to_be=[1, 2, 3], what="leaders")

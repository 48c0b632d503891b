"""The places that `group reset` understands."""

import pytest

from cordwood.administration.group.reset import Target, parse_target


@pytest.mark.parametrize("back", ["99999999999d", "99999999999999999999d", "9" * 1000 + "ms"])
def test_longer_ago_than_1970_is_the_beginning_of_time(back: str) -> None:
    assert parse_target(None, None, back) == Target("time", 0)


@pytest.mark.parametrize(
    ("to", "target"),
    [
        ("@0001-01-01", Target("time", 0)),
        ("@9223372036854775807", Target("time", 2**63 - 1)),
        ("99999999999999999999", Target("offset", 99999999999999999999)),
    ],
)
def test_the_first_and_the_last_place_that_can_be_named(to: str, target: Target) -> None:
    assert parse_target(to, None, None) == target

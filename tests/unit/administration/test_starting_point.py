"""The places in a log that `consume --from` understands."""

import pytest

from cordwood.administration.topic.starting_point import StartingPoint
from cordwood.model.failure import ExitCode, Failure


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("beginning", StartingPoint("beginning")),
        ("end", StartingPoint("end")),
        ("earliest", StartingPoint("beginning")),
        ("latest", StartingPoint("end")),
        ("committed", StartingPoint("committed")),
        ("0", StartingPoint("offset", 0)),
        ("42", StartingPoint("offset", 42)),
        ("-3", StartingPoint("last", 3)),
        ("@1000", StartingPoint("time", 1000)),
        ("@1970-01-01T00:00:02Z", StartingPoint("time", 2000)),
    ],
)
def test_a_place_in_a_log(text: str, point: StartingPoint) -> None:
    assert StartingPoint.parse(text) == point


@pytest.mark.parametrize("text", ["", "begin", "4.5", "--3", "@", "@yesterday", "1e3"])
def test_anything_else_is_a_usage_error_that_shows_what_is_possible(text: str) -> None:
    with pytest.raises(Failure) as caught:
        StartingPoint.parse(text)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "beginning" in caught.value.hint

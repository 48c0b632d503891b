"""docs/history.md describes the whole format and every anomaly."""

from pathlib import Path

import pytest

from cordwood.history import Anomaly
from cordwood.history.events import NAMES, Event

PAGE = (Path(__file__).parents[3] / "docs" / "history.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("kind", NAMES, ids=NAMES.values())
def test_every_event_and_its_fields_are_described(kind: type[Event]) -> None:
    (row,) = [row for row in ROWS if f"`{NAMES[kind]}`" in row.split("|")[1]]
    fields = row.split("|")[2]
    for name in kind._fields:
        assert name == "at_ms" or name in fields


@pytest.mark.parametrize("anomaly", Anomaly, ids=str)
def test_every_anomaly_is_defined(anomaly: Anomaly) -> None:
    assert [row for row in ROWS if row.split("|")[1].strip() == str(anomaly)]

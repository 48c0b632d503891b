"""Every option is documented."""

import re
from pathlib import Path

import pytest

from cordwood.spark.options.names import OPTIONS
from cordwood.spark.source.kafka_keys import Key
from cordwood.spark.source.schema import COLUMNS

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()


@pytest.mark.parametrize("name", [*OPTIONS, *(f"kafka.{key.value}" for key in Key)])
def test_an_option_has_a_row_of_its_table(name: str) -> None:
    assert re.search(rf"^\| [^|]*`{re.escape(name)}`[^|]* \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_a_row_of_its_table(name: str) -> None:
    assert re.search(rf"^\| [^|]*`{re.escape(name)}`[^|]* \|", PAGE, re.MULTILINE)

"""`make` says what it installs: pip's lines, shortened."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / ".ci" / "install.py"
SPECIFICATION = importlib.util.spec_from_file_location("install", FILE)
assert SPECIFICATION is not None
assert SPECIFICATION.loader is not None
install = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(install)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("  Downloading pyspark-4.3.0.tar.gz (455.9 MB)", "      pyspark 4.3.0, 455.9 MB"),
        ("  Using cached numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl (16.9 MB)", "      numpy 2.4.6, 16.9 MB"),
        ("  Downloading rich-15.0.0-py3-none-any.whl.metadata (18 kB)", None),
        ("  Building wheel for pyspark (pyproject.toml): started", "      building pyspark"),
        ("  Building wheel for pyspark (pyproject.toml): still running...", None),
        ("Installing collected packages: py4j, pyspark", "      unpacking 2 packages"),
        ("Collecting rich>=13 (from cordwood==0.1.0)", None),
    ],
)
def test_a_line_of_pip_is_told_in_short_or_not_at_all(line: str, told: str | None) -> None:
    assert install._told(line) == told


def test_spark_is_installed_as_the_project_asks_for_it() -> None:
    assert install._spark_requirement().startswith("pyspark")

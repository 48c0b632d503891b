"""The package says that it is typed, so that type checkers of users look into it."""

from importlib.resources import files

import pytest


@pytest.mark.parametrize("package", ["cordwood", "pyspark_cordwood"])
def test_the_package_is_marked_as_typed(package: str) -> None:
    assert (files(package) / "py.typed").is_file()

"""The Python that a session names for Spark: a stand-in on one machine, which executors of a cluster do not have."""

import os
import sys
from pathlib import Path

import pytest

from cordwood.spark.python import name_python, python_for_spark

VARIABLE = "PYSPARK_PYTHON"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Set first, so that the end of the test takes back what the test names.
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)


def test_a_session_on_one_machine_names_the_stand_in() -> None:
    name_python(is_local=True)
    assert os.environ[VARIABLE] == python_for_spark() != sys.executable


def test_a_session_on_a_cluster_takes_the_stand_in_back() -> None:
    name_python(is_local=True)
    name_python(is_local=False)
    assert os.environ[VARIABLE] == sys.executable


@pytest.mark.parametrize("is_local", [True, False])
def test_a_python_that_the_user_names_stays(is_local: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/opt/python")
    name_python(is_local=is_local)
    assert os.environ[VARIABLE] == "/opt/python"


def test_a_session_on_a_cluster_names_none_by_itself() -> None:
    name_python(is_local=False)
    assert VARIABLE not in os.environ

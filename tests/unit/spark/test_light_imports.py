"""What the processes of a query's planners import, and packages whose own code runs late."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.spark.python import python_for_spark
from cordwood.spark.workers import light_imports
from cordwood.spark.workers.daemon import PLANNERS
from cordwood.spark.workers.planner import RUNNER

HEAVY = ("numpy", "pyarrow", "pandas", "numba", "confluent_kafka", "pyspark.sql.functions", "pyspark.sql.session")

PLAN = f"""
import sys
from cordwood.spark.workers.light_imports import import_light
import_light({RUNNER!r})
from cordwood.spark.data_source import CordwoodDataSource
from pyspark.sql.types import _parse_datatype_json_string
schema = _parse_datatype_json_string('{{"type": "struct", "fields": [], "metadata": {{}}}}')
given = {{"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders"}}
source = CordwoodDataSource(given)
reader = source.streamReader(source.schema())
reader.getDefaultReadLimit()
reader._planner.close()
print(*[name for name in {HEAVY!r} if name in sys.modules])
"""

READ_ALL = f"""
from cordwood.spark.workers.light_imports import import_light
import_light({RUNNER!r})
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches, write_read_func_and_partitions
import pyspark, pyspark.sql.types
assert pyspark.SparkContext.__name__ == "SparkContext"
assert pyspark.sql.Row is pyspark.sql.types.Row
print(pyspark.__version__ == pyspark.version.__version__)
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_planner_of_a_stream_imports_neither_arrow_nor_numpy_nor_sessions() -> None:
    assert run(PLAN) == ""


def test_a_source_of_somebody_else_finds_all_of_pyspark() -> None:
    assert run(READ_ALL) == "True"


@pytest.mark.parametrize("program", sorted(PLANNERS - {"pyspark.sql.worker.data_source_pushdown_filters"}))
def test_the_programs_of_planners_import_no_sessions(program: str) -> None:
    asked = (
        "import sys; from cordwood.spark.workers.light_imports import import_light;"
        f"import_light('pyspark.daemon'); import_light({program!r});"
        "print([name for name in ('pyspark.sql.session', 'pyspark.core.context', 'pandas') if name in sys.modules])"
    )
    assert run(asked) == "[]"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `outer`, whose code counts its runs and takes names from its modules."""
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outer" / "__init__.py").write_text(
        "import sys\nsys.outer_runs = getattr(sys, 'outer_runs', 0) + 1\nfrom outer.deep import thing\n"
    )
    (tmp_path / "outer" / "deep.py").write_text("thing = 'from deep'\n")
    (tmp_path / "outer" / "inner" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(light_imports, "PACKAGES", ("outer",))
    monkeypatch.setattr(sys, "outer_runs", 0, raising=False)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "outer"]:
        del sys.modules[name]


def test_a_package_runs_its_code_once_and_not_before_a_name_of_it_is_needed(package: Path) -> None:
    (package / "outer" / "program.py").write_text("from outer import deep\nimport outer.inner\n")
    light_imports.import_light("outer.program")
    assert getattr(sys, "outer_runs") == 0  # noqa: B009
    outer = importlib.import_module("outer")
    assert outer.thing == "from deep"
    assert outer.thing == "from deep"
    assert getattr(sys, "outer_runs") == 1  # noqa: B009
    assert not hasattr(outer, "nothing")


def test_a_package_that_cannot_be_deferred_is_imported_as_a_whole(package: Path) -> None:
    (package / "outer" / "circle.py").write_text("from outer import helper\nfirst = helper\n")
    (package / "outer" / "__init__.py").write_text("helper = 'helper'\nfrom outer.circle import first\n")
    assert light_imports.import_light("outer.circle").first == "helper"


def test_the_stand_in_for_python_starts_planners_by_another_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    echo = tmp_path / "a python"
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    echo.chmod(0o755)
    stand_in = python_for_spark(str(echo))
    assert stand_in == python_for_spark(str(echo))

    def said(*arguments: str) -> list[str]:
        return subprocess.run([stand_in, *arguments], capture_output=True, text=True, check=True).stdout.splitlines()

    assert said("-m", RUNNER) == ["-m", "cordwood.spark.workers.planner", RUNNER]
    creating = "pyspark.sql.worker.create_data_source"
    assert said("-m", "pyspark.daemon", creating) == ["-m", "cordwood.spark.workers.daemon", creating]
    assert said("-m", "pyspark.daemon", "pyspark.worker") == ["-m", "pyspark.daemon", "pyspark.worker"]
    assert said("-c", "print( 1 )") == ["-c", "print( 1 )"]


def test_without_a_cache_python_stands_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert python_for_spark("/usr/bin/python3") == "/usr/bin/python3"

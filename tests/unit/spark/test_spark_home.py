"""SPARK_HOME as links to the installed Spark, with packages in the place of archives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.spark.spark_home import ensure_spark_home


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_python_processes_of_spark_import_files(cache: Path) -> None:
    environment: dict[str, str] = {}
    home = ensure_spark_home(environment)
    assert home is not None
    assert environment == {"SPARK_HOME": str(home)}
    assert cache in home.parents
    assert (home / "bin" / "spark-submit").exists()
    assert list((home / "jars").glob("spark-core*.jar"))
    archives = sorted((home / "python" / "lib").iterdir())
    assert [archive.name.split("-")[0] for archive in archives] == ["py4j", "pyspark.zip"]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, archives))}
    asked = "import pyspark.worker, py4j; print(pyspark.__file__, py4j.__file__, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", asked], env=paths, capture_output=True, text=True, check=True)
    for found, archive in zip(reversed(done.stdout.split()), archives, strict=True):
        assert Path(found).is_file()
        assert archive in Path(found).parents


def test_one_home_is_enough(cache: Path) -> None:
    assert ensure_spark_home({}) == ensure_spark_home({})
    assert len(list((cache / "cordwood").iterdir())) == 1


def test_a_home_that_is_set_stays(cache: Path) -> None:
    environment = {"SPARK_HOME": "/opt/spark"}
    assert ensure_spark_home(environment) is None
    assert environment == {"SPARK_HOME": "/opt/spark"}
    assert not cache.exists()


def test_without_a_cache_things_are_left_as_they_are(cache: Path) -> None:
    cache.write_text("not a directory")
    environment: dict[str, str] = {}
    assert ensure_spark_home(environment) is None
    assert environment == {}

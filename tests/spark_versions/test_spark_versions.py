"""Batches, streams, writes exactly once and a pipeline on older versions of Spark, or what these lack, in words."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.spark_versions.environments import ROOT, VERSIONS, NotFetched, python_of

from cordwood.spark.java import ensure_java

pytestmark = pytest.mark.timeout(2400)

TEN = list(range(10))


def told_by(version: str, directory: Path) -> dict[str, Any]:
    try:
        python = python_of(version)
    except NotFetched as failure:
        pytest.skip(f"PySpark {version} could not be fetched: {failure}")
    environment = {
        name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYSPARK_PYTHON", "PYTHONPATH")
    }
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    ensure_java(environment)
    ran = subprocess.run(
        [python, "-m", "tests.spark_versions.story", directory],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


def test_spark_4_2_reads_and_writes_batches_and_streams_and_runs_pipelines(tmp_path: Path) -> None:
    told = told_by("4.2.1", tmp_path)
    assert told["version"] == "4.2.1"
    assert told["batch read"] == told["batch write"] == TEN
    assert told["filtered"] == [7, 8, 9]
    # Offsets of markers of transactions may make up a batch.
    assert [batch for batch in told["stream read"] if batch] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [10, 11, 12]]
    assert told["stream write"] == TEN
    assert told["pipeline"]["code"] == 0, told["pipeline"]["said"]
    assert told["piped"] == 13


@pytest.mark.parametrize("version", ["4.1.4", "4.0.5"])
def test_spark_4_0_and_4_1_read_and_write_batches_and_say_what_streams_lack(version: str, tmp_path: Path) -> None:
    told = told_by(version, tmp_path)
    assert told["version"] == version
    assert told["batch read"] == told["batch write"] == TEN
    assert told["filtered"] == [7, 8, 9]
    lacking = f"needs PySpark 4.2 or newer, and {version} is installed"
    assert f"A stream from format cordwood {lacking}" in told["stream read"]
    assert f"format cordwood {lacking}" in told["stream write"]
    assert told["pipeline"]["code"] == 1
    assert f"A pipeline {lacking}" in " ".join(told["pipeline"]["said"].split())


def test_spark_3_5_is_refused_with_the_way_that_works(tmp_path: Path) -> None:
    told = told_by("3.5.9", tmp_path)
    assert "3.5.9 is installed: it has no data sources in Python" in told["import"]
    assert "spark-sql-kafka-0-10_2.12:3.5.9" in told["import"]


def test_the_docs_name_the_releases_that_these_tests_run() -> None:
    text = (ROOT / "docs/spark.md").read_text()
    assert f"the newest release of each line: {', '.join(VERSIONS[:-1])} and {VERSIONS[-1]}." in text

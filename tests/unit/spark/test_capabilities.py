"""What each version of PySpark can do, and the refusals of what it cannot, without that version."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.spark.releases.capabilities import NotInThisSpark, SparkTooOld, capabilities_of, installed

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src"


@pytest.mark.parametrize(
    ("version", "batches", "filters", "streams"),
    [
        ("3.5.9", False, False, False),
        ("4.0.5", True, False, False),
        ("4.1.0", True, True, False),
        ("4.2.0.dev3", True, True, True),
        ("4.3.0", True, True, True),
        ("4.10.1", True, True, True),
        ("5.0.0", True, True, True),
        ("unknown", True, True, True),
    ],
)
def test_a_version_can_do_what_came_with_it_or_before(
    version: str, batches: bool, filters: bool, streams: bool
) -> None:
    found = capabilities_of(version)
    assert (found.version, found.batches, found.filters, found.streams) == (version, batches, filters, streams)


def test_the_class_of_checkpoint_files_moved_with_4_1() -> None:
    assert ".checkpointing." not in capabilities_of("4.0.5").checkpoint_files
    assert ".checkpointing." in capabilities_of("4.1.0").checkpoint_files


def test_the_time_zone_of_arrow_is_named_in_the_words_of_the_version() -> None:
    assert capabilities_of("4.1.4").arrow_utc == {"timestamp_utc": True}
    assert capabilities_of("4.2.0").arrow_utc == {"timezone": "UTC"}


def test_a_spark_without_python_sources_is_refused_and_the_other_way_is_named() -> None:
    with pytest.raises(SparkTooOld, match=r"3\.5\.9 is installed") as refused:
        capabilities_of("3.5.9").require_batches()
    assert "spark-sql-kafka-0-10_2.12:3.5.9" in str(refused.value)
    assert "at least once, not exactly once" in str(refused.value)
    capabilities_of("4.0.0").require_batches()


@pytest.mark.parametrize(("version", "lacks_arrow"), [("4.0.5", True), ("4.1.4", False)])
def test_a_stream_is_refused_with_what_is_lacking_and_what_to_do(version: str, lacks_arrow: bool) -> None:
    with pytest.raises(NotInThisSpark) as refused:
        capabilities_of(version).require_streams("A pipeline")
    text = str(refused.value)
    assert text.startswith(f"A pipeline needs PySpark 4.2 or newer, and {version} is installed")
    assert "limits of a micro-batch" in text
    assert ("Arrow for the sink" in text) is lacks_arrow
    assert "Install `pyspark>=4.2`" in text
    assert "Batch reads and writes" in text
    capabilities_of("4.2.0").require_streams("A pipeline")


FAKE = "__version__: str = '3.5.9'\n"


def test_an_old_spark_is_refused_when_cordwood_spark_is_imported_and_offers_no_source(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise AssertionError('imported')\n")
    (tmp_path / "pyspark" / "version.py").write_text(FAKE)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import pyspark_cordwood\n"
        "print(pyspark_cordwood.__all__)\n"
        "try:\n    import cordwood.spark\nexcept ImportError as refused:\n    print(refused)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    offered, refusal = done.stdout.splitlines()
    assert offered == "[]"
    assert "3.5.9 is installed" in refusal


def test_the_installed_version_is_known_without_an_import_of_pyspark() -> None:
    program = "import sys, cordwood.spark; print([name for name in sys.modules if name.startswith('pyspark')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    found = installed()
    assert found is not None
    assert found.streams


def test_nobody_else_asks_for_the_version_of_spark() -> None:
    asks = re.compile(r"pyspark\.version|pyspark\.__version__|spark\.version\b")
    found = [str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if asks.search(path.read_text())]
    assert found == ["cordwood/spark/releases/capabilities.py"]


def test_the_table_of_versions_says_what_a_version_can_do() -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    for version in ("3.5", "4.0", "4.1", "4.2", "4.3"):
        (row,) = re.findall(rf"^\| {re.escape(version)} \|(.*)\|$", page, re.MULTILINE)
        said = [cell.strip() == "yes" for cell in row.split("|")]
        found = capabilities_of(f"{version}.0")
        assert said[:4] == [found.batches, found.filters, found.streams, found.streams], version

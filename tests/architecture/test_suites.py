"""No test is lost: each belongs to a suite, and each suite has a target in the Makefile that runs it."""

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.order import dealt
from tests.suites import HOMES, LANDING, SUITES, TESTS, first_seed_of, suites_of

MAKEFILE = (TESTS.parent / "Makefile").read_text()


def test_every_test_file_belongs_to_a_suite() -> None:
    for file in TESTS.rglob("test_*.py"):
        assert suites_of(file, ()) <= SUITES.keys()
        assert suites_of(file, ()), file


def test_a_marker_adds_a_suite_and_elsewhere_takes_the_place_of_the_landing() -> None:
    assert suites_of(TESTS / "spark" / "test_audit.py", {LANDING, "timeout"}) == {"spark", LANDING}
    assert suites_of(TESTS / "docs" / "test_documentation_runs.py", {"spark"}) == {"spark"}
    assert suites_of(TESTS / "unit" / "wire" / "test_apis.py", {"parametrize"}) == {LANDING}


def test_every_test_of_this_run_is_marked_with_its_suites(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        marks = {mark.name for mark in item.iter_markers()}
        assert marks & SUITES.keys() == suites_of(item.path, marks), item.nodeid


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_has_a_target_that_runs_its_tests(name: str) -> None:
    recipe = re.search(rf"^{SUITES[name].target}: env\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    assert f"$(SUITE) {name} --" in recipe[1]
    assert f"$(PYTEST) -m {name}" in MAKEFILE


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_each_worker_has_its_share_of_stories_and_the_first_one_has_spark(workers: int) -> None:
    files = [TESTS / folder / f"test_{number}.py" for folder in ("cluster", "spark", "unit") for number in range(8)]
    tests = [file for file in files for _ in range(5)]
    on_spark = [file.parent.name == "spark" and file.stem < "test_2" for file in tests]
    order = dealt(tests, on_spark, workers)
    assert sorted(order) == list(range(len(tests)))
    assert [tests[index].stem for index in order[:10]] == ["test_0"] * 5 + ["test_1"] * 5
    length = len(tests) // workers
    for run in (order[at : at + length] for at in range(0, len(tests), length)):
        begun = [tests[index] for index in run]
        assert begun.count(begun[0]) == 5
        stories = [file.parent.name != "unit" for file in begun]
        assert stories == sorted(stories, reverse=True)
        assert 0 < sum(stories) < length or workers == 1


def test_folders_with_a_suite_of_their_own_exist() -> None:
    assert [folder for folder in HOMES if not (TESTS / folder).is_dir()] == []


def test_a_suite_tells_its_time_and_ends_as_its_command_does() -> None:
    ended = _suite("crash", "import sys; sys.exit(3)")
    assert ended.returncode == 3
    assert re.search(r"^make test-crash failed in 0 min \d\d s of \d+ min$", ended.stdout, re.MULTILINE)


def test_a_soak_begins_elsewhere_every_day_and_says_where() -> None:
    days = [datetime(2026, 11, day, tzinfo=UTC) for day in (16, 17)]
    assert first_seed_of(days[0]) + 1000 < first_seed_of(days[1])
    ended = _suite("soak", "import os; print('seed', os.environ['CORDWOOD_FIRST_SEED'])")
    (seed,) = re.findall(r"^seed (\d+)$", ended.stdout, re.MULTILINE)
    assert f"seeds from {seed} on" in ended.stdout
    assert re.search(r"^\d{4}-\d\d-\d\d: ", ended.stdout, re.MULTILINE)


def _suite(name: str, program: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.suites", name, "--", sys.executable, "-c", program]
    return subprocess.run(command, cwd=Path(TESTS.parent), capture_output=True, text=True, check=False)


def test_no_undo_file_of_a_move_is_in_the_repository() -> None:
    """Commands that move partitions write it to the present directory; a test's directory is its `tmp_path`."""
    if not (TESTS.parent / ".git").exists():
        pytest.skip("this is no repository")
    tracked = subprocess.run(["git", "ls-files"], cwd=TESTS.parent, capture_output=True, text=True, check=True).stdout
    assert [name for name in tracked.splitlines() if "cordwood-undo-" in name] == []

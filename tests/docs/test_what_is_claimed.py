"""The pages claim what is there: one node, in plain text, installed from a clone."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.py"))]


def test_nobody_is_told_to_install_what_no_index_has() -> None:
    wrong = ("pip install 'cordwood", "pip install cordwood")
    assert [path for path in TEXTS if any(command in path.read_text() for command in wrong)] == []


def test_the_first_page_says_what_there_is_today() -> None:
    page = (ROOT / "README.md").read_text()
    assert "one node" in page
    assert "plain text" in page


def test_the_package_does_not_say_that_it_is_distributed_yet() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "distributed" not in project["description"]

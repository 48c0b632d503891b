"""The pages claim what is there: one node or a cluster, in plain text, installed from a clone."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.py"))]


def test_nobody_is_told_to_install_what_no_index_has() -> None:
    wrong = ("pip install 'cordwood", "pip install cordwood")
    assert [path for path in TEXTS if any(command in path.read_text() for command in wrong)] == []


def test_the_first_page_says_what_there_is_today() -> None:
    page = (ROOT / "README.md").read_text()
    assert "one node or a cluster" in page
    assert "plain text" in page


def test_the_package_says_that_it_replicates() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "replicated" in project["description"]
    assert "one node" not in project["description"]

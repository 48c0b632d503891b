"""Every page of docs/decisions/ has one form and a line in the index; pages of docs/internals/ stay short."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
INDEX = DOCS / "decisions" / "README.md"
DECISIONS = sorted(page for page in (DOCS / "decisions").glob("*.md") if page != INDEX)
INTERNALS = sorted((DOCS / "internals").glob("*.md"))


def words_of(page: Path) -> int:
    return len(page.read_text().split())


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_a_decision_has_four_sections_and_fewer_than_600_words(page: Path) -> None:
    headings = re.findall(r"^(#+ .*)$", page.read_text(), re.MULTILINE)
    assert headings[0].startswith("# ")
    assert headings[1:] == ["## Question", "## Considered", "## Chosen", "## Costs"]
    assert words_of(page) < 600


def test_the_index_names_every_decision_once() -> None:
    assert sorted(re.findall(r"^\| \[[\w-]+\]\(([\w-]+\.md)\) \|", INDEX.read_text(), re.MULTILINE)) == [
        page.name for page in DECISIONS
    ]


@pytest.mark.parametrize("page", INTERNALS, ids=lambda page: page.name)
def test_a_page_of_internals_has_fewer_than_2500_words(page: Path) -> None:
    assert words_of(page) < 2500

"""docs/compatibility.md says what the kept results of `make interop` say, of every story at its present version."""

from tests.interop_software.page import PAGE, markdown, remembered
from tests.interop_software.stories import STORIES


def test_the_page_is_what_the_results_make() -> None:
    assert PAGE.read_text() == markdown(STORIES, remembered()), "run: make interop"

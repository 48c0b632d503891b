"""The demo's chapters can be played alone: each brings along what it needs."""

import pytest

from cordwood.cli.demo.chapters import UnknownChapter, chosen
from cordwood.cli.demo.story import CHAPTERS


def names(*wanted: str) -> list[str]:
    return [chapter.name for chapter in chosen(CHAPTERS, wanted)]


def test_without_names_the_whole_story_is_played() -> None:
    assert names() == [chapter.name for chapter in CHAPTERS]


def test_a_chapter_brings_along_what_it_needs_and_nothing_else() -> None:
    assert names("kill-reader") == ["start", "write", "readers", "kill-reader"]
    assert names("cluster") == ["cluster"]
    assert names("correct") == ["start", "write", "pipeline", "correct"]


def test_chapters_are_played_in_the_order_of_the_story() -> None:
    assert names("files", "order") == ["start", "write", "order", "files"]


def test_a_chapter_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownChapter, match="finale"):
        names("finale")


def test_every_chapter_needs_only_chapters_before_it() -> None:
    played: set[str] = set()
    for chapter in CHAPTERS:
        assert set(chapter.needs) <= played
        played.add(chapter.name)

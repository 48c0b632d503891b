"""The demo's chapters by name, the chapters that each needs, and the choice of chapters to play."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from cordwood.cli.demo.scene import Scene


class Chapter(NamedTuple):
    name: str
    about: str
    play: Callable[[Scene], None]
    needs: tuple[str, ...] = ()
    """Chapters that have to be played before this one."""
    on_spark: bool = False


class UnknownChapter(Exception):
    """No chapter has this name."""


def chosen(chapters: Sequence[Chapter], names: Collection[str]) -> list[Chapter]:
    """The named chapters and the chapters that they need, in the order of the story; without names, all."""
    by_name = {chapter.name: chapter for chapter in chapters}
    wanted: set[str] = set()
    waiting = list(names or by_name)
    while waiting:
        name = waiting.pop()
        if name not in by_name:
            raise UnknownChapter(name)
        if name not in wanted:
            wanted.add(name)
            waiting += by_name[name].needs
    return [chapter for chapter in chapters if chapter.name in wanted]

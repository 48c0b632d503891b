"""Hooks of mkdocs: the navigation names whole folders, and pages written for a code host read well on the site.

Promises: a page that is added to a folder of the navigation, or renamed there, needs no change of mkdocs.yml.
"""

import posixpath
import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

_FOLDER = "/*.md"
_MARK = re.compile(r"^(```\w+) (?:run|test|walk)$")
_LIST_OR_TABLE = re.compile(r"(?:[-*] |\d+\. |\|)")
_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)\s#]+)\)")


def on_config(config: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Puts the pages of a folder in the place of an entry like `decisions/*.md`. A section without pages is dropped."""
    docs = Path(config["docs_dir"])
    named = {entry for entry in _entries(config["nav"]) if not entry.endswith(_FOLDER)}
    config["nav"] = _expanded(config["nav"], docs, named)
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Says in Python-Markdown's words what a code host understands as well."""
    lines: list[str] = []
    in_code = False
    for line in markdown.splitlines():
        if line.startswith("```"):
            in_code = not in_code
            line = _MARK.sub(r"\1", line)
        elif not in_code:
            if _LIST_OR_TABLE.match(line) and lines and lines[-1] and not _goes_on(lines[-1], line):
                lines.append("")
            line = _LINK.sub(lambda link: _within(link, page.file.src_uri), line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _goes_on(before: str, line: str) -> bool:
    """Whether a line of a list or table follows another one of it, or an indented line of a list."""
    if line.startswith("|"):
        return before.startswith("|")
    return before.startswith(" ") or _LIST_OR_TABLE.match(before) is not None


def _within(link: re.Match[str], page: str) -> str:
    """A link to a file of the repository outside of docs/ is its path: the site does not have the file."""
    text, target = link.groups()
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    if path.startswith("docs/"):
        return link[0]
    return f"`{path}`" if path.endswith(text.strip("`")) else f"{text} (`{path}`)"


def _entries(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for value in entry.values():
                yield from _entries(value if isinstance(value, list) else [value])


def _expanded(nav: list[Any], docs: Path, named: set[str]) -> list[Any]:
    made: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry.endswith(_FOLDER):
            pages = (path.relative_to(docs).as_posix() for path in sorted(docs.glob(entry)))
            made += [page for page in pages if page not in named]
        elif isinstance(entry, str):
            made.append(entry)
        else:
            for title, value in entry.items():
                inner = _expanded(value, docs, named) if isinstance(value, list) else value
                if inner:
                    made.append({title: inner})
    return made

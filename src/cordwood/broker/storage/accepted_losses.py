"""`accepted-losses`: the data directories whose loss an operator has accepted, and the partitions that were in no other
directory then. The next start names the partitions that begin empty, and removes the file.

`cordwood recover accept-lost-directory` writes it. The file is for people: a start does the same without it.
"""

import json
from collections.abc import Callable, Iterable

from cordwood.model.identifiers import TopicPartition
from cordwood.segments.filesystem import Filesystem, read_if_there, remove_if_there

FILE_NAME = "accepted-losses"
NAMED = 20
"""The most partitions that one line names."""


def note(filesystem: Filesystem, home: str, path: str, partitions: Iterable[TopicPartition]) -> None:
    """Adds a directory to the file, durably."""
    noted = {**_read(filesystem, home), path: list(map(str, partitions))}
    filesystem.replace(f"{home}/{FILE_NAME}", json.dumps(noted, indent=1, sort_keys=True).encode())


def begun_empty(filesystem: Filesystem, home: str, found_in: Callable[[TopicPartition], object | None]) -> list[str]:
    """A text about the partitions that begin empty at this start, which `found_in` does not find. Removes the file."""
    words = []
    for path, names in sorted(_read(filesystem, home).items()):
        empty = [name for name in names if found_in(TopicPartition.parse(name)) is None]
        if empty:
            words.append(f"the loss of {path} was accepted: {in_words(empty)} begin empty, at offset 0")
    remove_if_there(filesystem, f"{home}/{FILE_NAME}")
    return words


def in_words(names: list[str]) -> str:
    """The first of these names, and the number of further ones."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _read(filesystem: Filesystem, home: str) -> dict[str, list[str]]:
    try:
        noted = json.loads(read_if_there(filesystem, f"{home}/{FILE_NAME}") or b"{}")
        return {str(path): [str(TopicPartition.parse(str(name))) for name in names] for path, names in noted.items()}
    except (ValueError, AttributeError, TypeError):
        return {}

"""The running Cordwood: its version, and the commit from which it was made, if that can be known.

A package that pip installed from a repository has the commit in its record of origin (PEP 610). A checkout has it in
`.git`. A package from an index has neither: its version says enough.
"""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cordwood import __version__

UNKNOWN = "unknown"
_COMMIT_LENGTH = 40


class Build(NamedTuple):
    version: str
    commit: str
    """40 hexadecimal digits, or `unknown`."""


@cache
def build() -> Build:
    """The version and the commit. The first call reads a few small files."""
    package = Path(__file__).parents[2]
    return Build(__version__, installed_from(package.parent) or checked_out(package.parents[1]) or UNKNOWN)


def installed_from(folder: Path) -> str | None:
    """The commit from which the package in a folder was installed. `importlib.metadata` would find the record, too, and
    delay every start of a broker by 20 ms."""
    try:
        record = json.loads((folder / f"cordwood-{__version__}.dist-info" / "direct_url.json").read_text())
        commit = record.get("vcs_info", {}).get("commit_id")
    except (OSError, ValueError, AttributeError):
        return None
    return _as_commit(commit)


def checked_out(root: Path) -> str | None:
    """The commit that is checked out in a directory; None: it is no checkout of a repository."""
    try:
        git = root / ".git"
        if git.is_file():
            # A worktree of a repository that is elsewhere.
            git = root / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return _as_commit(head)
        name = head.removeprefix("ref:").strip()
        common = git / "commondir"
        homes = [git, git / common.read_text().strip()] if common.exists() else [git]
        for home in homes:
            if (home / name).is_file():
                return _as_commit((home / name).read_text().strip())
            if (home / "packed-refs").is_file():
                for line in (home / "packed-refs").read_text().splitlines():
                    commit, _, ref = line.partition(" ")
                    if ref == name:
                        return _as_commit(commit)
    except (OSError, UnicodeDecodeError):
        pass
    return None


def _as_commit(text: object) -> str | None:
    if not isinstance(text, str) or len(text) != _COMMIT_LENGTH:
        return None
    return text if all(each in "0123456789abcdef" for each in text) else None

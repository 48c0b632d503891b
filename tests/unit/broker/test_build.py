"""The commit of a running broker, of a checkout in all its forms."""

import json
from pathlib import Path

import pytest

from cordwood import __version__
from cordwood.broker.machine.build import UNKNOWN, build, checked_out, installed_from

COMMIT = "0123456789abcdef" * 2 + "01234567"


def test_this_broker_names_its_version_and_its_commit_or_says_that_it_does_not_know() -> None:
    found = build()
    assert found.version == __version__
    assert found.commit == (checked_out(Path(__file__).parents[3]) or UNKNOWN)


def test_the_commit_of_an_installed_package_is_in_its_record_of_origin(tmp_path: Path) -> None:
    assert installed_from(tmp_path) is None
    origin = tmp_path / f"cordwood-{__version__}.dist-info" / "direct_url.json"
    write(origin, json.dumps({"url": "https://example.org/cordwood", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}))
    assert installed_from(tmp_path) == COMMIT
    write(origin, json.dumps({"url": "file:///wheel", "archive_info": {}}))
    assert installed_from(tmp_path) is None


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("worktree", [False, True])
def test_the_commit_of_a_branch_is_found(tmp_path: Path, packed: bool, worktree: bool) -> None:
    git = tmp_path / "main" / ".git"
    checkout = tmp_path / "main"
    head = git
    if worktree:
        checkout, head = tmp_path / "tree", git / "worktrees" / "tree"
        write(checkout / ".git", f"gitdir: {head}\n")
        write(head / "commondir", "../..\n")
    write(head / "HEAD", "ref: refs/heads/topic\n")
    if packed:
        write(
            git / "packed-refs", f"# pack-refs with: peeled\n{'f' * 40} refs/heads/other\n{COMMIT} refs/heads/topic\n"
        )
    else:
        write(git / "refs" / "heads" / "topic", f"{COMMIT}\n")
    assert checked_out(checkout) == COMMIT


def test_a_detached_commit_is_found(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", f"{COMMIT}\n")
    assert checked_out(tmp_path) == COMMIT


@pytest.mark.parametrize("head", ["", "ref: refs/heads/gone\n", "nonsense\n"])
def test_what_is_no_checkout_has_no_commit(tmp_path: Path, head: str) -> None:
    assert checked_out(tmp_path) is None
    write(tmp_path / ".git" / "HEAD", head)
    assert checked_out(tmp_path) is None

"""What `cordwood cluster import` refuses before it touches anything."""

from pathlib import Path

from typer.testing import CliRunner

from cordwood.cli.app import app
from cordwood.model.failure import ExitCode


def test_raise_without_a_terminal_wants_yes_before_it_waits_for_brokers(tmp_path: Path) -> None:
    place = ("--cluster", "shop", "--store", f"unix://{tmp_path}/none.sock")
    ended = CliRunner().invoke(app, ["cluster", "import", str(tmp_path / "data"), *place, "--raise", "3"])
    assert ended.exit_code == ExitCode.USAGE
    assert "--raise moves partitions: this needs a confirmation" in " ".join(ended.stderr.split())
    assert "add --yes" in ended.stderr
    assert not list(tmp_path.iterdir())

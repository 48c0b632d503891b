"""Every failure has one shape, says what to do, and leaves with its exit code."""

import json
import socket
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from cordwood.administration.connection import parse_server
from cordwood.cli.app import app
from cordwood.cli.reference import EXIT_CODE_MEANINGS
from cordwood.cli.terminal.options import parse_assignments
from cordwood.model.failure import ExitCode, Failure, near_names
from cordwood.model.quantities import count_in_words, size_in_words

runner = CliRunner()


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port on which nothing listens: bound, so that nobody else takes it."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


BROKER_COMMANDS = [
    ["topic", "create", "t"],
    ["topic", "list"],
    ["topic", "describe", "t"],
    ["topic", "alter", "t", "--partitions", "2"],
    ["topic", "delete", "t", "--yes"],
    ["produce", "t", "v"],
    ["consume", "t"],
    ["config", "describe", "--topic", "t"],
    ["config", "alter", "--topic", "t", "--set", "retention.ms=1"],
    ["audit", "t"],
]


@pytest.mark.parametrize("command", BROKER_COMMANDS, ids=" ".join)
def test_no_broker_is_said_at_once_with_what_to_do(command: list[str], free_port: int) -> None:
    result = runner.invoke(app, [*command, "-b", f"127.0.0.1:{free_port}"])
    assert result.exit_code == ExitCode.NOT_REACHABLE
    assert result.stdout == ""
    assert f"no broker answers at 127.0.0.1:{free_port}" in result.stderr
    assert "cordwood serve" in result.stderr


@pytest.mark.parametrize("command", BROKER_COMMANDS, ids=" ".join)
def test_with_json_the_error_is_json_on_stderr(command: list[str], free_port: int) -> None:
    result = runner.invoke(app, [*command, "--json", "-b", f"127.0.0.1:{free_port}"])
    assert result.exit_code == ExitCode.NOT_REACHABLE
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["code"] == "BROKER_NOT_REACHABLE"


def test_the_environment_names_the_broker(free_port: int) -> None:
    result = runner.invoke(app, ["topic", "list"], env={"CORDWOOD_BOOTSTRAP": f"127.0.0.1:{free_port}"})
    assert f"127.0.0.1:{free_port}" in result.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["topicc"], "Did you mean 'topic'"),
        (["topic", "creat"], "Did you mean 'create'"),
        (["topic", "create"], "TOPIC"),
        (["topic", "create", "t", "--bogus"], "--bogus"),
        (["topic", "create", "t", "--partitions", "0"], "--partitions"),
        (["topic", "create", "t", "--partitions", "100001"], "--partitions"),
        (["topic", "create", "t", "--replication-factor", "10001"], "--replication-factor"),
        (["topic", "create", "", "--partitions", "1"], "cannot be empty"),
        (["topic", "describe", "t", "t\udcff"], "no UTF-8"),
        (["topic", "delete", "", "--yes"], "cannot be empty"),
        (["topic", "alter", "t", "--partitions", "99999999999"], "--partitions"),
        (["topic", "create", "t", "--config", "retention.ms"], "NAME=VALUE"),
        (["topic", "alter", "t"], "nothing to alter"),
        (["config", "alter", "--topic", "t"], "nothing to alter"),
        (["config", "describe", "--topic", ""], "cannot be empty"),
        (["produce", "t", "--key", "k", "--key-separator", ":"], "excludes"),
        (["produce", "t", "v", "--json-input"], "stdin"),
        (["produce", "t", "--key-separator", ""], "cannot be empty"),
        (["produce", "", "v"], "cannot be empty"),
        (["produce", "t", "v", "--header", "h\udcff=1"], "no UTF-8"),
        (["consume", ""], "cannot be empty"),
        (["produce", "t", "--tombstone"], "key"),
        (["produce", "t", "--acks", "2"], "--acks"),
        (["consume", "t", "--from", "somewhere"], "no place in a log"),
        (["consume", "t", "--from", "committed"], "--group"),
        (["topic", "list", "-b", "nowhere:port"], "HOST:PORT"),
        (["inspect", ".", "--verify", "--records"], "exclude"),
        (["topic", "list", "--timeout", "inf"], "not a possible time to wait"),
        (["group", "watch", "g", "--interval", "inf"], "not a possible time to wait"),
        (["group", "watch", "g", "--interval", "1e10"], "not a possible time to wait"),
        (["group", "describe", "g", "--sample", "inf"], "not a possible time to wait"),
        (["group", "reset", "", "-t", "t", "--to", "end"], "cannot be empty"),
        (["group", "reset", "g" * 40_000, "-t", "t", "--to", "end"], "too long: 40,000 bytes"),
        (["group", "reset", "\u00fc" * 16_384, "-t", "t", "--to", "end"], "too long: 32,768 bytes"),
        (["group", "reset", "g", "-t", "", "--to", "end"], "cannot be empty"),
        (["group", "reset", "g\udcff", "-t", "t", "--to", "end"], "no UTF-8"),
        (["group", "reset", "g", "-t", "t", "--to", "@99999999999999999999999999"], "no place in a log"),
        (["group", "reset", "g", "-t", "t", "--to", "9" * 5000], "no place in a log"),
        (["group", "reset", "g", "-t", "t", "--back", "9" * 5000 + "d"], "not a duration"),
        (["group", "delete", "g", "g" * 40_000, "--yes"], "too long"),
        (["consume", "t", "--group", "g" * 40_000], "too long"),
        (["consume", "t", "--from", "@99999999999999999999999999"], "no place in a log"),
        (["transaction", "describe", "t" * 40_000], "too long"),
        (["transaction", "abort", "t" * 40_000, "--yes"], "too long"),
        (["transaction", "list", "--state", "t" * 40_000], "too long"),
    ],
    ids=lambda value: ascii(" ".join(value)[:60]) if isinstance(value, list) else None,
)
def test_a_wrong_command_line_is_a_usage_error(command: list[str], said: str) -> None:
    result = runner.invoke(app, command)
    assert result.exit_code == ExitCode.USAGE, result.output
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert len(result.stderr) < 500, "what is wrong with a long word is said in a short one"
    shaped = runner.invoke(app, [*command, "--json"])
    assert shaped.exit_code == ExitCode.USAGE
    assert json.loads(shaped.stderr)["error"]["code"] == "USAGE"


def test_a_group_without_a_command_shows_its_help() -> None:
    result = runner.invoke(app, ["topic"])
    assert result.exit_code == ExitCode.USAGE
    assert "create" in result.output


def test_help_and_version_succeed() -> None:
    assert "serve" in runner.invoke(app, ["--help"]).stdout
    version = runner.invoke(app, ["--version"])
    assert version.exit_code == ExitCode.DONE
    assert version.stdout.startswith("cordwood ")


def test_every_exit_code_is_explained() -> None:
    assert set(EXIT_CODE_MEANINGS) == set(ExitCode)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("host", ("host", 9092)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
        (" h:1 ", ("h", 1)),
    ],
)
def test_a_server_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_server(text) == address


@pytest.mark.parametrize("text", ["", ":9092", "h:", "h:x", "h:0", "h:70000", "a..b:9092", "x" * 64])
def test_what_is_no_server_is_refused(text: str) -> None:
    with pytest.raises(Failure):
        parse_server(text)


def test_near_names_are_offered_and_far_ones_are_not() -> None:
    assert near_names("ordrs", ["orders", "payments"]) == "did you mean orders?"
    assert near_names("zzz", ["orders"]) == ""


def test_assignments_keep_everything_after_the_first_equals_sign() -> None:
    assert parse_assignments(["a=b=c", " d = e "]) == {"a": "b=c", "d": "e"}


def test_counts_and_sizes_in_words() -> None:
    assert count_in_words(1, "record") == "1 record"
    assert count_in_words(2000, "record") == "2,000 records"
    assert [size_in_words(size) for size in (0, 1023, 1024, 1536, 2**30)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "1.0 GiB",
    ]

"""`cordwood serve` and `cordwood inspect` on real processes and directories."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cordwood

from cordwood.administration.topic.starting_point import Span, StartingPoint
from cordwood.model.failure import ExitCode

CORDWOOD = [sys.executable, "-m", "cordwood.cli"]


def _environment(**more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("CORDWOOD_")}
    return {**kept, **more}


@contextmanager
def _running(
    *arguments: str, where: Path, **environment: str
) -> "Iterator[tuple[subprocess.Popen[str], re.Match[str]]]":
    """A broker and its ready line."""
    process = subprocess.Popen(
        [*CORDWOOD, *arguments],
        cwd=where,
        env=_environment(**environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        ready = re.fullmatch(r"cordwood ready on (\S+:\d+) \((?:\d+ workers; )?data in (.+)\)\n", line)
        assert ready is not None, line + process.stderr.read()
        yield process, ready
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def _ends(*arguments: str, where: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A command that ends by itself."""
    return subprocess.run(
        [*CORDWOOD, *arguments],
        cwd=where,
        env=_environment(**environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _terminate(process: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> int:
    process.send_signal(number)
    return process.wait(timeout=90)


def test_serve_needs_no_flags_and_no_directory(tmp_path: Path) -> None:
    # The address comes from the environment, because other tests may use the default port now.
    with _running("serve", where=tmp_path, CORDWOOD_LISTEN="127.0.0.1:0") as (process, ready):
        assert ready[2] == "./cordwood-data"
        cordwood = Cordwood(ready[1])
        cordwood("topic", "create", "orders")
        cordwood("produce", "orders", "kept")
        assert _terminate(process) == ExitCode.DONE
    assert (tmp_path / "cordwood-data" / "orders-0").is_dir()
    with _running("serve", where=tmp_path, CORDWOOD_LISTEN="127.0.0.1:0") as (_, ready):
        assert Cordwood(ready[1])("consume", "orders") == "kept\n"


def test_the_bare_command_shows_the_help_and_serves_nothing(tmp_path: Path) -> None:
    ended = _ends(where=tmp_path, CORDWOOD_LISTEN="127.0.0.1:0")
    assert ended.returncode == ExitCode.USAGE
    assert "Usage: cordwood" in ended.stdout
    assert not list(tmp_path.iterdir())


def test_a_shell_that_asks_for_completions_starts_no_broker_whatever_the_arguments_are(tmp_path: Path) -> None:
    ended = _ends(
        "serve", where=tmp_path, _CORDWOOD_COMPLETE="complete_bash", COMP_WORDS="cordwood clu", COMP_CWORD="1"
    )
    assert ended.stdout.split() == ["cluster"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_it_is_told(tmp_path: Path, number: int) -> None:
    with _running("serve", "--listen", "127.0.0.1:0", where=tmp_path) as (process, _):
        assert _terminate(process, number) == ExitCode.DONE


def test_flags_file_and_environment_make_the_settings(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text("num.partitions = 5\n[log]\nretention.ms = 1111\n")
    with _running(
        "serve",
        "--data-dir",
        "here",
        "--listen=127.0.0.1:0",
        "--config",
        "broker.toml",
        "--set",
        "log.segment.bytes=2222222",
        where=tmp_path,
        CORDWOOD_LOG_ROLL_MS="3333",
    ) as (_, ready):
        assert ready[2] == "here"
        cordwood = Cordwood(ready[1])
        assert cordwood.json("topic", "create", "t")["partitions"] == 5
        settings = cordwood.json("config", "describe", "--topic", "t", "--changed")
        values = {name: setting["value"] for name, setting in settings.items()}
        assert values == {"retention.ms": "1111", "segment.bytes": "2222222", "segment.ms": "3333"}


def test_an_address_that_is_taken_is_an_error_with_advice(tmp_path: Path) -> None:
    with _running("serve", "--listen", "127.0.0.1:0", where=tmp_path) as (_, ready):
        second = _ends("serve", "--listen", ready[1], "--data-dir", "other", where=tmp_path)
        assert second.returncode == ExitCode.FAILED
        assert second.stderr.startswith("error: ")
        assert "--listen" in second.stderr
        assert "Traceback" not in second.stderr


def test_a_taken_address_of_metrics_is_an_error_that_names_its_setting(tmp_path: Path) -> None:
    with _running("serve", "--listen", "127.0.0.1:0", where=tmp_path) as (_, ready):
        taken = f"metrics.listener={ready[1]}"
        second = _ends("serve", "--listen", "127.0.0.1:0", "--set", taken, "--data-dir", "other", where=tmp_path)
        assert second.returncode == ExitCode.FAILED
        assert "give another with --set metrics.listener=HOST:PORT" in second.stderr
        assert "--listen" not in second.stderr


@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
def test_a_log_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path, workers: tuple[str, ...]) -> None:
    ended = _ends("serve", "--listen", "127.0.0.1:0", "--log-file", "none/broker.log", *workers, where=tmp_path)
    assert ended.returncode == ExitCode.FAILED
    assert f"the log file {tmp_path}/none/broker.log cannot be written: No such file or directory" in ended.stderr
    assert "--log-file" in ended.stderr
    assert "--listen" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.stories
def test_all_workers_write_their_lines_to_the_file_and_in_the_format_of_the_flags(tmp_path: Path) -> None:
    flags = ("--log-file", "broker.log", "--log-format", "json")
    with _running("serve", "--workers", "2", "--listen", "127.0.0.1:0", *flags, where=tmp_path) as (process, _):
        # Each worker says that it stops; until then one may have nothing to say.
        assert _terminate(process) == ExitCode.DONE
    lines = [json.loads(line) for line in (tmp_path / "broker.log").read_text().splitlines()]
    assert {1, 2} <= {line.get("broker") for line in lines}


@pytest.mark.stories
def test_a_directory_belongs_to_one_broker_and_is_not_inspected_meanwhile(tmp_path: Path) -> None:
    with _running("serve", "--listen", "127.0.0.1:0", where=tmp_path) as (process, ready):
        cordwood = Cordwood(ready[1])
        cordwood("topic", "create", "orders", "-p", 2)
        cordwood("produce", "orders", "a", "b", "c", "--key", "k")
        second = _ends("serve", "--listen", "127.0.0.1:0", where=tmp_path)
        assert second.returncode == ExitCode.FAILED
        assert "cordwood-data" in second.stderr
        assert "Traceback" not in second.stderr
        refused = _ends("inspect", "--json", where=tmp_path)
        assert refused.returncode == ExitCode.FAILED
        assert json.loads(refused.stderr)["error"]["code"] == "DATA_DIRECTORY_IN_USE"
        assert _terminate(process) == ExitCode.DONE
    assert "not stopped cleanly" not in _ends("inspect", where=tmp_path).stderr
    verified = _ends("inspect", "--verify", "--json", where=tmp_path)
    assert verified.returncode == ExitCode.DONE, verified.stdout
    listed = _ends("inspect", "cordwood-data", "--records", "--json", where=tmp_path).stdout.splitlines()
    orders = [json.loads(line) for line in listed if json.loads(line)["topic"] == "orders"]
    assert [record["value"] for record in orders] == ["a", "b", "c"]
    producers = json.loads(_ends("inspect", "--producers", "--json", where=tmp_path).stdout)
    assert [row["last_sequence"] for row in producers if row["partition"].startswith("orders-")] == [2]


@pytest.mark.stories
def test_a_reader_does_not_wait_for_ever_for_a_broker_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _running("serve", "--listen", "127.0.0.1:0", where=tmp_path) as (process, ready):
        cordwood = Cordwood(ready[1])
        cordwood("topic", "create", "orders")
        cordwood("produce", "orders", "a")
        resolve = StartingPoint.resolve

        def resolve_then_kill(self: StartingPoint, *arguments: Any) -> dict[int, Span]:
            spans = resolve(self, *arguments)
            process.kill()
            process.wait()
            return spans

        monkeypatch.setattr(StartingPoint, "resolve", resolve_then_kill)
        code, error = cordwood.error("consume", "orders", "--timeout", "1")
    assert (code, error["code"]) == (ExitCode.NOT_REACHABLE, "REQUEST_TIMED_OUT")


def test_a_broken_setting_never_starts_a_broker(tmp_path: Path) -> None:
    ended = _ends("serve", "--set", "num.partitions=none", where=tmp_path)
    assert ended.returncode == ExitCode.USAGE
    assert "num.partitions" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.stories
@pytest.mark.timeout(1000)
def test_the_demo_holds_what_it_claims(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "cordwood.cli.demo"],
        cwd=tmp_path,
        env=_environment(TMPDIR=str(tmp_path), CORDWOOD_DEMO_SPARK=os.environ.get("CORDWOOD_DEMO_SPARK", "no")),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "claims held" in ended.stdout
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_the_ready_line_for_scripts_has_the_shape_of_that_of_workers(tmp_path: Path) -> None:
    command = [*CORDWOOD, "serve", "--json", "--listen", "127.0.0.1:0", "--data-dir", "data"]
    with subprocess.Popen(command, cwd=tmp_path, env=_environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert re.fullmatch(r"127\.0\.0\.1:\d+", told.pop("bootstrap_servers"))
            assert told == {"nodes": [{"id": 1, "pid": process.pid}]}
            refused = _ends("serve", "--json", "--listen", "127.0.0.1:0", "--data-dir", "data", where=tmp_path)
            assert "locked" in json.loads(refused.stderr)["error"]["message"]
        finally:
            process.terminate()

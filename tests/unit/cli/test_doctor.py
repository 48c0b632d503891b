"""What `cordwood doctor` says of machines: of this one, and of those that nobody has at hand."""

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.administration.doctor.facts import Clock, Disk, Limits, Memory, Port, StoreMember
from cordwood.administration.doctor.judgement import (
    Finding,
    State,
    judge_clock,
    judge_disk,
    judge_limits,
    judge_log_file,
    judge_memory,
    judge_ports,
    judge_store,
)
from cordwood.cli.app import app
from cordwood.cli.doctor.measuring import log_file_of, ports_of
from cordwood.embedded import Broker
from cordwood.model.failure import ExitCode
from cordwood.model.settings.broker_settings import BrokerSettings

GIB = 1 << 30
SOUND = Disk("/data", True, False, "", "ext4", 50 * GIB, 100 * GIB, 1.0, 1000.0)
PORT = Port("PLAINTEXT://127.0.0.1:9092", "", "127.0.0.1", True, False)


def states(findings: list[Finding]) -> set[State]:
    return {finding.state for finding in findings}


def test_a_sound_machine_is_fine() -> None:
    findings = [
        *judge_disk(SOUND),
        judge_limits(Limits(None, 25_000, 10_000)),
        judge_limits(Limits(1 << 20, 25_000, 10_000)),
        judge_memory(Memory(8 * GIB, 7 * GIB, GIB)),
        *judge_clock(Clock(True, 1000.0), SOUND),
        *judge_ports([PORT], broker_runs=False),
        *judge_store([StoreMember(f"etcd://{host}:2379", "", 3.0) for host in "abc"]),
        *judge_store([]),
    ]
    assert states(findings) == {State.FINE}
    assert not any(finding.remedy for finding in findings)


@pytest.mark.parametrize(
    ("disk", "state"),
    [
        (replace(SOUND, refusal="Permission denied"), State.PROBLEM),
        (replace(SOUND, kind="tmpfs"), State.PROBLEM),
        (replace(SOUND, kind="nfs4"), State.WARNING),
        (replace(SOUND, free_bytes=10 * GIB), State.WARNING),
        (replace(SOUND, free_bytes=2 * GIB), State.PROBLEM),
        (replace(SOUND, sync_ms=60.0), State.WARNING),
        (replace(SOUND, mode=0o755), State.WARNING),
    ],
)
def test_a_disk_that_will_hurt_is_named_with_what_to_do(disk: Disk, state: State) -> None:
    worse = [finding for finding in judge_disk(disk) if finding.state is not State.FINE]
    assert [finding.state for finding in worse] == [state]
    assert worse[0].remedy


def test_too_few_descriptors_and_too_little_memory_are_named() -> None:
    few = judge_limits(Limits(1024, 25_000, 10_000))
    assert (few.state, "ulimit -Hn 25000" in few.remedy) == (State.WARNING, True)
    assert judge_memory(Memory(GIB, GIB, GIB)).state is State.PROBLEM
    assert judge_memory(Memory(8 * GIB, GIB, GIB)).state is State.WARNING


def test_a_clock_that_went_back_or_is_nobodys_business_is_named() -> None:
    assert states([*judge_clock(Clock(True, 1000.0), replace(SOUND, newest_s=5000.0))]) == {State.PROBLEM}
    assert states([*judge_clock(Clock(False, 1000.0), SOUND)]) == {State.WARNING}


def test_a_taken_port_is_a_problem_unless_the_broker_itself_has_it() -> None:
    taken = replace(PORT, refusal="Address already in use")
    assert states([*judge_ports([taken], broker_runs=False)]) == {State.PROBLEM}
    assert states([*judge_ports([taken], broker_runs=True)]) == {State.FINE}
    assert State.PROBLEM in states([*judge_ports([replace(PORT, told_is_known=False)], broker_runs=False)])
    assert State.WARNING in states([*judge_ports([replace(PORT, everywhere=True)], broker_runs=False)])


def test_the_port_of_metrics_is_looked_at_too() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "metrics.listener": address}
        (_, metrics) = ports_of(BrokerSettings.from_texts(texts))
    (problem,) = judge_ports([metrics], broker_runs=False)
    assert (problem.state, address in problem.words) == (State.PROBLEM, True)
    assert "--set metrics.listener=" in problem.remedy
    (free,) = judge_ports([replace(metrics, refusal="")], broker_runs=False)
    assert free.words == f"{address} (metrics.listener) is free"


def test_one_dead_member_of_three_is_a_warning_and_two_are_a_problem() -> None:
    alive, dead = StoreMember("etcd://a:2379", "", 3.0), StoreMember("etcd://b:2379", "refused", 0.0)
    assert states([*judge_store([alive, alive, dead])]) == {State.FINE, State.WARNING}
    assert State.PROBLEM in states([*judge_store([alive, dead, dead])])
    assert states([*judge_store([replace(alive, answer_ms=300.0)] * 3)]) == {State.WARNING}
    assert states([*judge_store([alive])]) == {State.FINE, State.WARNING}


def test_a_log_file_that_cannot_be_written_is_a_problem_and_a_relative_one_a_warning(tmp_path: Path) -> None:
    def judged(name: str) -> list[Finding]:
        return list(judge_log_file(log_file_of(BrokerSettings.from_texts({"logging.file": name} if name else {}))))

    (tmp_path / "there.log").write_text("a line\n")
    assert judged("") == []
    assert states(judged(f"{tmp_path}/there.log")) == states(judged(f"{tmp_path}/new.log")) == {State.FINE}
    assert states(judged("broker.log")) == {State.WARNING}
    (refused,) = judged(f"{tmp_path}/none/broker.log")
    assert (refused.state, refused.words) == (
        State.PROBLEM,
        f"{tmp_path}/none/broker.log cannot be written: No such file or directory",
    )
    (refused,) = judged(str(tmp_path))
    assert refused.state is State.PROBLEM
    assert [path.name for path in tmp_path.iterdir()] == ["there.log"]
    assert (tmp_path / "there.log").read_text() == "a line\n"


def test_this_machine_is_looked_at_without_a_broker_and_left_as_it_was(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ["doctor", "-d", str(tmp_path / "not" / "yet"), "-s", f"listeners={address}"]
        result = CliRunner().invoke(app, [*arguments, "--json"])
        shown = CliRunner().invoke(app, arguments)
    assert result.exit_code == shown.exit_code == ExitCode.PROBLEM_FOUND
    findings = json.loads(result.stdout)
    assert {finding["area"] for finding in findings} == {"disk", "open files", "memory", "clock", "ports"}
    assert [finding["words"] for finding in findings if finding["area"] == "ports"] == [
        f"cannot listen on PLAINTEXT://{address}: Address already in use"
    ]
    assert "Address already in use" in shown.stdout
    assert list(tmp_path.iterdir()) == []


def doctor_on(*directories: Path) -> tuple[int, list[dict[str, str]]]:
    """The exit code, and what doctor says of the directories themselves."""
    paths = ",".join(map(str, directories))
    result = CliRunner().invoke(app, ["doctor", "-d", paths, "-s", "listeners=127.0.0.1:0", "--json"])
    return result.exit_code, [each for each in json.loads(result.stdout) if each["area"] == "data directories"]


def test_several_directories_are_judged_together_and_left_as_they_are(tmp_path: Path) -> None:
    home, other, third = tmp_path / "home", tmp_path / "other", tmp_path / "third"
    with Broker(data_dir=f"{home},{other}") as broker:
        for topic in ("orders", "payments"):
            broker.log.append(topic, None, b"placed")
    log = next(path for path in other.iterdir() if path.name in ("orders-0", "payments-0"))
    assert doctor_on(home, other)[1] == []

    shutil.copytree(log, home / log.name)
    _, (twice,) = doctor_on(home, other)
    assert (twice["state"], str(log) in twice["words"]) == ("warning", True)
    shutil.rmtree(home / log.name)

    other.rename(third)
    code, (missing,) = doctor_on(home, other)
    assert (code, missing["state"]) == (ExitCode.PROBLEM_FOUND, "problem")
    assert f"the data directory that was at {other}" in missing["words"]
    assert f"cordwood recover accept-lost-directory {home} {other}" in missing["words"]
    assert not other.exists()
    assert doctor_on(home, third)[1] == []


def test_a_metadata_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = f"unix://{tmp_path}/nobody.sock"
    settings = ["cluster.name=c", "node.id=1", f"cluster.store={store}", "listeners=127.0.0.1:0"]
    flags = [word for setting in settings for word in ("-s", setting)]
    result = CliRunner().invoke(app, ["doctor", "-d", str(tmp_path), *flags, "--json"])
    found = [finding for finding in json.loads(result.stdout) if finding["area"] == "metadata store"]
    assert [finding["state"] for finding in found] == ["problem"]
    assert store in found[0]["words"]


@contextmanager
def _as_somebody_else() -> Iterator[None]:
    """Runs as a user who owns nothing, if the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_directory_of_somebody_else_is_a_problem_and_no_traceback() -> None:
    top = Path(tempfile.mkdtemp())
    try:
        top.chmod(0o755)
        with Broker(data_dir=top / "data"):
            pass
        (top / "data").chmod(0o700 if os.geteuid() == 0 else 0)
        with _as_somebody_else():
            ran = CliRunner().invoke(app, ["doctor", "--data-dir", f"{top}/data", "--json"])
        assert ran.exit_code == ExitCode.PROBLEM_FOUND, ran.exception
        disk = next(each for each in json.loads(ran.stdout) if each["area"] == "disk")
        assert disk["state"] == State.PROBLEM
        assert disk["words"] == f"{top}/data cannot be read and written by this user: Permission denied"
        assert "as that user" in disk["remedy"]
    finally:
        (top / "data").chmod(0o700)
        shutil.rmtree(top)

"""A broker on several data directories: what it serves, what it says of them, and when it refuses to start."""

import json
import logging
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker.several_directories import PARTITIONS, broker, identity, partitions_in, paths, read, written
from tests.deadline import eventually
from typer.testing import CliRunner

from cordwood.cli.app import app
from cordwood.embedded import Broker, Cluster
from cordwood.log.directory import directory_set
from cordwood.log.directory.identity import Identity, write_identity
from cordwood.model.errors import StorageFailure
from cordwood.segments.filesystem import Filesystem


def test_partitions_are_spread_over_the_directories_and_come_back_in_any_order(tmp_path: Path) -> None:
    with broker(paths(tmp_path, "a", "b")) as first:
        values = written(first.bootstrap_servers)
    assert [len(partitions_in(tmp_path / name)) for name in ("a", "b")] == [2, 2]
    with broker(paths(tmp_path, "c", "b", "a")) as second:
        assert read(second.bootstrap_servers, *PARTITIONS) == values
    assert not (tmp_path / "b" / "metadata.sqlite").exists()
    assert not (tmp_path / "c" / "metadata.sqlite").exists()


def test_a_broker_alone_starts_without_a_lost_directory_only_if_the_loss_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(paths(tmp_path, "a", "b")) as first:
        values = written(first.bootstrap_servers)
    lost = partitions_in(tmp_path / "b")
    assert lost
    shutil.move(tmp_path / "b", tmp_path / "away")
    command = f"`cordwood recover accept-lost-directory {tmp_path / 'a'} {tmp_path / 'b'}`"
    for directories in (("a",), ("a", "b")):
        with pytest.raises(StorageFailure, match=r"/b \(directory.id .*\) is missing or was emptied") as refused_start:
            broker(paths(tmp_path, *directories)).start()
        assert command in str(refused_start.value)
    with pytest.raises(StorageFailure, match=f"with the broker's metadata, that was at {tmp_path / 'a'}, is missing"):
        broker(paths(tmp_path, "away")).start()
    with broker(paths(tmp_path, "away", "a")) as second:
        # Mounted elsewhere, it is the same directory.
        assert read(second.bootstrap_servers, *PARTITIONS) == values
    shutil.move(tmp_path / "away", tmp_path / "gone")
    commands = CliRunner()
    refused = commands.invoke(app, ["recover", "accept-lost-directory", str(tmp_path / "a"), str(tmp_path / "c")])
    assert refused.exit_code != 0
    monkeypatch.chdir(tmp_path)
    accept = ["recover", "accept-lost-directory", "a", "away"]
    unconfirmed = commands.invoke(app, accept)
    assert "--yes" in unconfirmed.output
    assert unconfirmed.exit_code != 0
    accepted = commands.invoke(app, [*accept, "--yes"])
    assert accepted.exit_code == 0, accepted.output
    names = ", ".join(f"orders-{partition}" for partition in sorted(lost))
    assert accepted.output.startswith(names)
    with caplog.at_level(logging.WARNING), broker(paths(tmp_path, "a", "b")) as third:
        assert f"the loss of {tmp_path / 'away'} was accepted: {names}" in caplog.text
        kept = set(PARTITIONS) - lost
        assert read(third.bootstrap_servers, *kept) == {partition: values[partition] for partition in kept}
        again = written(third.bootstrap_servers, "again ")
        assert read(third.bootstrap_servers, *lost) == {partition: again[partition] for partition in lost}
    with pytest.raises(StorageFailure, match="are logs of the same partition"):
        broker(paths(tmp_path, "a", "b", "gone")).start()


def test_a_home_that_lost_its_properties_still_knows_the_other_directories(tmp_path: Path) -> None:
    with broker(paths(tmp_path, "a", "b")) as first:
        values = written(first.bootstrap_servers)
    before = identity(tmp_path / "a")
    (tmp_path / "a" / "meta.properties").unlink()
    with pytest.raises(StorageFailure, match=r"/b \(directory.id .*\) is missing"):
        broker(paths(tmp_path, "a")).start()
    with broker(paths(tmp_path, "b", "a")) as second:
        assert read(second.bootstrap_servers, *PARTITIONS) == values
    after = identity(tmp_path / "a")
    assert (after.directory_id, after.directories) == (before.directory_id, before.directories)


def test_the_loss_of_a_directory_is_accepted_in_a_home_that_has_only_the_copy_of_its_properties(tmp_path: Path) -> None:
    with broker(paths(tmp_path, "a", "b")) as first:
        values = written(first.bootstrap_servers)
    kept = partitions_in(tmp_path / "a")
    (tmp_path / "a" / "meta.properties").unlink()
    shutil.rmtree(tmp_path / "b")
    other_command = CliRunner().invoke(app, ["recover", "put-back", str(tmp_path / "a"), "--all"])
    assert "one of several data directories" in " ".join(other_command.output.split())
    accept = ["recover", "accept-lost-directory", str(tmp_path / "a"), str(tmp_path / "b"), "--yes"]
    accepted = CliRunner().invoke(app, accept)
    assert accepted.exit_code == 0, accepted.output
    with broker(paths(tmp_path, "a")) as second:
        assert read(second.bootstrap_servers, *kept) == {partition: values[partition] for partition in kept}


@pytest.mark.parametrize("lost", [("b's",), ("a", "b's")])
def test_a_directory_that_lost_only_its_properties_is_not_called_lost(tmp_path: Path, lost: tuple[str, ...]) -> None:
    with broker(paths(tmp_path, "a", "b's")) as first:
        values = written(first.bootstrap_servers)
    before = identity(tmp_path / "b's")
    for name in lost:
        (tmp_path / name / "meta.properties").unlink()
    with pytest.raises(StorageFailure, match=r"has the logs of .*, and no meta.* not lost") as refused:
        broker(paths(tmp_path, "a", "b's")).start()
    assert "accept-lost-directory" not in str(refused.value)
    accept = ["recover", "accept-lost-directory", str(tmp_path / "a"), str(tmp_path / "b's"), "--yes"]
    accepted = CliRunner().invoke(app, accept)
    assert accepted.exit_code != 0
    assert "Its records are not lost" in " ".join(accepted.output.split())
    command = str(refused.value).split("`")[1]
    subprocess.run(["sh", "-c", command], check=True)
    assert identity(tmp_path / "b's") == before
    with broker(paths(tmp_path, "a", "b's")) as second:
        assert read(second.bootstrap_servers, *PARTITIONS) == values


@pytest.mark.parametrize("stop", ["clean", "killed", "on another disk"])
def test_a_directory_that_lost_its_properties_and_a_log_is_not_said_to_have_all_records(
    tmp_path: Path, stop: str
) -> None:
    with broker(paths(tmp_path, "a", "b")) as first:
        values = written(first.bootstrap_servers)
    lost, kept = sorted(partitions_in(tmp_path / "b"))
    (tmp_path / "b" / "meta.properties").unlink()
    shutil.rmtree(tmp_path / "b" / f"orders-{lost}")
    if stop == "killed":
        # No checkpoint was written before.
        (tmp_path / "b" / ".kafka_cleanshutdown").unlink()
        for file in (tmp_path / "b").glob("*-offset-*"):
            file.unlink()
        (tmp_path / "b" / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    elif stop == "on another disk":
        # The log that is left was copied there.
        for file in (tmp_path / "b").iterdir():
            if file.is_file():
                file.unlink()
    with pytest.raises(StorageFailure, match=f"has the logs of orders-{kept}, and no meta") as refused:
        broker(paths(tmp_path, "a", "b")).start()
    assert f"orders-{lost}: in none of the given directories" in str(refused.value)
    assert "not lost" not in str(refused.value)
    accept = ["recover", "accept-lost-directory", str(tmp_path / "a"), str(tmp_path / "b"), "--yes"]
    accepted = CliRunner().invoke(app, accept)
    assert accepted.exit_code != 0
    assert f"orders-{lost}: in none of the given directories" in " ".join(accepted.output.split())
    subprocess.run(["sh", "-c", str(refused.value).split("`")[1]], check=True)
    with broker(paths(tmp_path, "a", "b")) as second:
        there = set(PARTITIONS) - {lost}
        assert read(second.bootstrap_servers, *there) == {partition: values[partition] for partition in there}


def test_an_empty_directory_in_the_home_hides_no_partition_of_a_lost_directory(tmp_path: Path) -> None:
    with broker(paths(tmp_path, "a", "b")) as first:
        written(first.bootstrap_servers)
    lost = [f"orders-{partition}" for partition in sorted(partitions_in(tmp_path / "b"))]
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "a" / lost[0]).mkdir()
    accept = ["recover", "accept-lost-directory", str(tmp_path / "a"), str(tmp_path / "b"), "--yes"]
    assert CliRunner().invoke(app, accept).output.startswith(f"{lost[0]}, {lost[1]}: in none")


def test_a_directory_that_is_added_makes_no_log_suspect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with broker(paths(tmp_path, "a")) as first:
        written(first.bootstrap_servers)
    for directories in (("a", "b"), ("a", "b", "c")):
        with caplog.at_level(logging.INFO), broker(paths(tmp_path, *directories)):
            assert "unclean stop" not in caplog.text


class Killed(BaseException):
    """Ends a start as a kill does."""


def killed_at_write(monkeypatch: pytest.MonkeyPatch, number: int, directories: str) -> None:
    """Ends a start in place of the given write of properties."""
    writes = 0

    def write(filesystem: Filesystem, path: str, owner: Identity) -> None:
        nonlocal writes
        writes += 1
        if writes == number:
            raise Killed
        write_identity(filesystem, path, owner)

    with monkeypatch.context() as patched:
        patched.setattr(directory_set, "write_identity", write)
        with pytest.raises(Killed):
            broker(directories).start()


@pytest.mark.parametrize("again", [("a", "b", "c"), ("c", "b", "a")])
@pytest.mark.parametrize("write", [1, 2, 3])
def test_a_first_start_that_was_interrupted_is_finished_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int, again: tuple[str, ...]
) -> None:
    killed_at_write(monkeypatch, write, paths(tmp_path, "a", "b", "c"))
    if write > 1:
        # The finishing start is interrupted as well.
        killed_at_write(monkeypatch, 2, paths(tmp_path, *again))
        assert not (tmp_path / "a" / "meta.properties").exists()
    with broker(paths(tmp_path, *again)) as second:
        values = written(second.bootstrap_servers)
    if write > 1:
        assert set(identity(tmp_path / "a").directories.values()) == {str(tmp_path / name) for name in again}
    with broker(paths(tmp_path, "a", "b", "c")) as third:
        assert read(third.bootstrap_servers, *PARTITIONS) == values


@pytest.mark.parametrize("known", [("a",), ("a", "b")])
def test_a_directory_whose_addition_was_interrupted_is_added_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: tuple[str, ...]
) -> None:
    with broker(paths(tmp_path, *known)) as first:
        values = written(first.bootstrap_servers)
    killed_at_write(monkeypatch, 2, paths(tmp_path, *known, "c"))
    assert (tmp_path / "c" / "meta.properties").exists()
    for directories in (known, (*known, "c")):
        with broker(paths(tmp_path, *directories)) as second:
            assert read(second.bootstrap_servers, *PARTITIONS) == values
    assert str(tmp_path / "c") in identity(tmp_path / "a").directories.values()


@pytest.mark.crash
def test_a_broker_alone_says_how_the_lost_properties_of_its_home_are_written_again(tmp_path: Path) -> None:
    with broker(paths(tmp_path, "a", "b")) as first:
        values = written(first.bootstrap_servers)
    home, other = tmp_path / "a" / "meta.properties", tmp_path / "b" / "meta.properties"
    home_id = identity(tmp_path / "b").home_id
    home.unlink()
    # A release without this copy wrote the directory.
    (tmp_path / "a" / "home.properties").unlink()
    with pytest.raises(StorageFailure, match=f"copy {other} there, and in the copy write directory.id={home_id} in"):
        broker(paths(tmp_path, "b", "a")).start()
    kept = [line for line in other.read_text().splitlines() if "directory.id" not in line]
    home.write_text("\n".join([*kept, f"directory.id={home_id}"]))
    with broker(paths(tmp_path, "b", "a")) as second:
        assert read(second.bootstrap_servers, *PARTITIONS) == values
    assert set(identity(tmp_path / "a").directories.values()) == {str(tmp_path / "a"), str(tmp_path / "b")}


def test_commands_for_one_directory_refuse_one_of_several(tmp_path: Path) -> None:
    broker(paths(tmp_path, "a", "b")).start().stop()
    commands = CliRunner()
    for words in (["recover", "put-back"], ["recover", "metadata"]):
        for name in ("a", "b"):
            result = commands.invoke(app, [*words, str(tmp_path / name)])
            assert "one of several data directories" in " ".join(result.output.split())


def isr(bootstrap_servers: str) -> list[list[int]]:
    topic = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}).list_topics("orders", timeout=30)
    return [sorted(topic.topics["orders"].partitions[partition].isrs) for partition in PARTITIONS]


@pytest.mark.crash
@pytest.mark.parametrize("lost", ["a", "b"])
def test_a_node_of_a_cluster_fills_the_replicas_of_a_lost_directory_from_others(tmp_path: Path, lost: str) -> None:
    with Cluster(nodes=2) as cluster:
        settings: dict[str, str | int] = {
            "cluster.name": "embedded",
            "cluster.store": cluster.store,
            "node.id": 3,
        }
        third = Broker(data_dir=paths(tmp_path, "a", "b"), settings=settings).start()
        try:
            administrator = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
            topic = NewTopic(
                "orders",
                len(PARTITIONS),
                replica_assignment=[[3, 1] for _ in PARTITIONS],
                config={"min.insync.replicas": "1"},
            )
            administrator.create_topics([topic])["orders"].result()
            values = written(cluster.bootstrap_servers)
            third.stop()
            before = identity(tmp_path / "a")
            shutil.rmtree(tmp_path / lost)
            third.start()
            assert identity(tmp_path / "a").storage_id != before.storage_id, "the cluster is told of the loss"
            eventually(lambda: isr(cluster.bootstrap_servers) == [[1, 3]] * len(PARTITIONS))
            cluster.brokers[1].stop()
            eventually(lambda: all(third.log.leader("orders", partition) == 3 for partition in PARTITIONS))
            assert read(third.bootstrap_servers, *PARTITIONS) == values
        finally:
            third.stop()


def test_a_node_of_a_cluster_takes_its_former_home_in_again_and_knows_a_home_by_the_copy(tmp_path: Path) -> None:
    with Cluster(nodes=1) as cluster:
        settings: dict[str, str | int] = {"cluster.name": "embedded", "cluster.store": cluster.store, "node.id": 3}

        def start(*names: str) -> None:
            Broker(data_dir=paths(tmp_path, *names), settings=settings).start().stop()

        start("a", "b")
        before = identity(tmp_path / "a")
        (tmp_path / "a" / "meta.properties").unlink()
        start("a", "b")
        assert identity(tmp_path / "a") == before, "the storage id is that of the copy"
        start("b")
        home = identity(tmp_path / "b")
        assert (home.home_id, home.storage_id == before.storage_id) == ("", False)
        start("a", "b")
        assert identity(tmp_path / "a").home_id == home.directory_id
        assert identity(tmp_path / "b").storage_id == home.storage_id
        assert not (tmp_path / "a" / "cluster-witness").exists()


@pytest.mark.interop
def test_the_command_moves_logs_to_another_directory_and_tells_where_they_are(tmp_path: Path) -> None:
    with broker(paths(tmp_path, "a", "b")) as running:
        values = written(running.bootstrap_servers)
        target = str(tmp_path / "b")

        def move_dir(*arguments: str) -> tuple[int, str]:
            options = ["--bootstrap-server", running.bootstrap_servers]
            done = CliRunner().invoke(app, ["cluster", "move-dir", "orders", *arguments, *options])
            return done.exit_code, done.output

        code, told = move_dir("--to", target)
        assert code == 0
        assert f"4 partitions of orders are in {target} now.\n" in told
        code, told = move_dir("--json")
        assert code == 0
        assert {each["directory"] for each in json.loads(told)["logs"]} == {target}
        code, told = move_dir("0", "--to", "a")
        assert f"1 partition of orders is in {tmp_path / 'a'} now.\n" in told
        code, told = move_dir("0", "--to", "./b/")
        assert code == 0, told
        code, told = move_dir("--to", "/elsewhere")
        assert code != 0
        assert target in told
        assert read(running.bootstrap_servers, *PARTITIONS) == values
    with broker(paths(tmp_path, "a", "b")) as again:
        assert read(again.bootstrap_servers, *PARTITIONS) == values
    assert partitions_in(tmp_path / "b") == set(PARTITIONS)

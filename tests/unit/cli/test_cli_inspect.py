"""`cordwood inspect` on directories made byte by byte: what it shows, and that --verify finds each kind of damage."""

import fcntl
import json
import os
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cordwood.cli.app import app
from cordwood.model.failure import ExitCode
from cordwood.model.identifiers import TopicPartition
from cordwood.records.batch import HEADER_SIZE, Codec
from cordwood.records.build import build_batch
from cordwood.segments.end_witness import FILE_NAMES as END_FILES
from cordwood.segments.end_witness import encode_ends, end_key
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.leader_epochs import LeaderEpochs
from cordwood.segments.names import Suffix, segment_file_name
from cordwood.segments.offset_checkpoint import RECOVERY_POINT_FILE, encode_offsets
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE
from cordwood.segments.partition_metadata import PartitionMetadata, encode_partition_metadata
from cordwood.segments.producer_snapshot import ProducerSnapshotEntry, encode_snapshot
from cordwood.segments.set_aside import NOTE_FILE, Note, encode_note

runner = CliRunner()
PARTITION = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=42)
BATCHES, PER_BATCH = 6, 5
END = BATCHES * PER_BATCH
SPLIT = 3 * PER_BATCH
"""The second segment begins here."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one partition: two segments of three batches, indexes, snapshot, checkpoints."""
    directory = tmp_path / "data"
    home = directory / str(PARTITION)
    home.mkdir(parents=True)
    for base_offset in (0, SPLIT):
        _write_segment(home, base_offset)
    epochs = LeaderEpochs()
    epochs.assign(4, 0)
    (home / "leader-epoch-checkpoint").write_bytes(epochs.to_bytes())
    snapshot = [ProducerSnapshotEntry(77, 1, SPLIT - 1, SPLIT - 1, PER_BATCH - 1, 1000, 0, -1)]
    (home / segment_file_name(SPLIT, Suffix.SNAPSHOT)).write_bytes(encode_snapshot(snapshot))
    (directory / RECOVERY_POINT_FILE).write_bytes(encode_offsets({PARTITION: END - PER_BATCH}))
    return directory


def _write_segment(home: Path, base_offset: int) -> None:
    indexes = SegmentIndexes(base_offset, interval_bytes=1)
    log = bytearray()
    for first in range(base_offset, base_offset + SPLIT, PER_BATCH):
        batch = build_batch(
            [
                (1000 + offset, f"k{offset % 2}".encode(), f"v{offset}".encode(), (("h", b"x"),))
                for offset in range(first, first + PER_BATCH)
            ],
            base_offset=first,
            codec=Codec.LZ4,
            leader_epoch=4,
            producer_id=77,
            producer_epoch=1,
            base_sequence=first,
        )
        indexes.note(len(log), len(batch), first + PER_BATCH - 1, 1000 + first + PER_BATCH - 1)
        log += batch
    indexes.close()
    (home / segment_file_name(base_offset, Suffix.LOG)).write_bytes(log)
    (home / segment_file_name(base_offset, Suffix.INDEX)).write_bytes(indexes.offsets.to_bytes())
    (home / segment_file_name(base_offset, Suffix.TIME_INDEX)).write_bytes(indexes.times.to_bytes())


def _file(data: Path, base_offset: int, suffix: Suffix) -> Path:
    return data / str(PARTITION) / segment_file_name(base_offset, suffix)


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def _inspect(*arguments: object) -> Result:
    return runner.invoke(app, ["inspect", *map(str, arguments)])


def _problems(data: Path) -> list[dict[str, object]]:
    result = _inspect(data, "--verify", "--json")
    verdict = json.loads(result.stdout)
    assert result.exit_code == (ExitCode.PROBLEM_FOUND if verdict["problems"] else ExitCode.DONE)
    problems: list[dict[str, object]] = verdict["problems"]
    return problems


def test_a_sound_directory_verifies(data: Path) -> None:
    result = _inspect(data, "--verify")
    assert result.exit_code == ExitCode.DONE
    assert "1 partition, 30 records in 6 batches verified: all is well" in result.stdout


def test_the_overview_shows_offsets_and_recovery_points(data: Path) -> None:
    other = data / "payments-3"
    other.mkdir()
    [orders, payments] = json.loads(_inspect(data, "--json").stdout)
    assert orders["partition"] == "orders-0"
    assert (orders["segments"], orders["start_offset"], orders["end_offset"]) == (2, 0, END)
    assert orders["recovery_point"] == END - PER_BATCH
    assert payments == {
        "partition": "payments-3",
        "segments": 0,
        "start_offset": 0,
        "end_offset": 0,
        "recovery_point": None,
        "size_bytes": 0,
        "directory": "payments-3",
        "set_aside": None,
    }
    shown = _inspect(data)
    assert "orders-0" in shown.stdout
    assert "not stopped cleanly" in shown.stderr


def test_what_was_set_aside_is_shown_with_the_reason_and_the_offsets_it_had(data: Path) -> None:
    note = Note(TopicPartition("orders", 0), None, "nobody knows it", 0, END - PER_BATCH, 1, None)
    (data / "orders-0" / NOTE_FILE).write_bytes(encode_note(note))
    (data / "orders-0").rename(data / "orders-0.7-stray")
    (row,) = json.loads(_inspect(data, "--json").stdout)
    assert (row["partition"], row["directory"], row["set_aside"]) == ("orders-0", "orders-0.7-stray", "nobody knows it")
    assert (row["start_offset"], row["end_offset"], row["recovery_point"]) == (1, END, END - PER_BATCH)
    assert "nobody knows it" in _inspect(data).stdout
    by_name = _inspect(data, "orders-0.7-stray", "--records", "--json").stdout
    assert len(by_name.splitlines()) == END
    assert _inspect(data / "orders-0.7-stray", "--records", "--json").stdout == by_name


def test_one_partition_shows_its_segments_and_checkpoints(data: Path) -> None:
    shown = json.loads(_inspect(data, "orders-0", "--json").stdout)
    assert [(row["base_offset"], row["end_offset"], row["batches"]) for row in shown["segments"]] == [
        (0, SPLIT, 3),
        (SPLIT, END, 3),
    ]
    assert shown["leader_epochs"] == [{"epoch": 4, "start_offset": 0}]
    assert shown["producer_snapshots"] == [SPLIT]
    assert _inspect(data / "orders-0", "--json").stdout == _inspect(data, "orders-0", "--json").stdout
    assert "leader epoch 4 begins" in _inspect(data, "orders-0").stdout


def test_batches_and_records_can_be_listed_from_an_offset(data: Path) -> None:
    rows = [json.loads(line) for line in _inspect(data, "orders-0", "--batches", "--json").stdout.splitlines()]
    assert [row["base_offset"] for row in rows] == list(range(0, END, PER_BATCH))
    assert {row["codec"] for row in rows} == {"lz4"}
    assert {row["producer_id"] for row in rows} == {77}
    listed = _inspect(data, "orders-0", "--records", "--json", "--from", 7, "-n", 4).stdout.splitlines()
    records = [json.loads(line) for line in listed]
    assert [record["offset"] for record in records] == [7, 8, 9, 10]
    assert records[0]["value"] == "v7"
    assert records[0]["headers"] == [["h", "x"]]
    assert "k1\th=x\tv7" in _inspect(data, "orders-0", "--records", "--from", 7, "-n", 1).stdout
    assert "77/1" in _inspect(data, "orders-0", "--batches").stdout


def test_producers_come_from_the_snapshot_and_the_log_behind_it(data: Path) -> None:
    [producer] = json.loads(_inspect(data, "orders-0", "--producers", "--json").stdout)
    assert (producer["producer_id"], producer["epoch"]) == (77, 1)
    assert (producer["last_sequence"], producer["last_offset"]) == (END - 1, END - 1)
    assert producer["snapshot_offset"] == SPLIT
    assert "77" in _inspect(data, "orders-0", "--producers").stdout


def test_a_flipped_bit_below_the_recovery_point_is_damage_and_the_rest_is_still_read(data: Path) -> None:
    _flip(_file(data, 0, Suffix.LOG), HEADER_SIZE + 3)
    [problem] = _problems(data)
    assert problem["kind"] == "damage"
    assert problem["partition"] == "orders-0"
    assert (problem["offset"], problem["end_offset"]) == (0, PER_BATCH)
    text = _inspect(data, "--verify").stdout
    assert "damage: orders-0, offsets 0 to 4" in text
    assert "25 records in 5 batches verified: 1 problem" in text
    assert "acknowledged records cannot be read" in text


def test_a_batch_that_is_cut_short_above_the_recovery_point_is_a_torn_tail(data: Path) -> None:
    log = _file(data, SPLIT, Suffix.LOG)
    os.truncate(log, log.stat().st_size - 7)
    kinds = {problem["kind"]: problem for problem in _problems(data)}
    assert (kinds["torn tail"]["offset"], kinds["torn tail"]["end_offset"]) == (END - PER_BATCH, None)
    assert f"offset {END - PER_BATCH} and all that follow" in _inspect(data, "--verify").stdout
    assert "damage" not in kinds


def test_the_same_tail_below_the_recovery_point_is_damage(data: Path) -> None:
    (data / RECOVERY_POINT_FILE).write_bytes(encode_offsets({PARTITION: END}))
    log = _file(data, SPLIT, Suffix.LOG)
    os.truncate(log, log.stat().st_size - 7)
    assert "damage" in {problem["kind"] for problem in _problems(data)}


@pytest.mark.parametrize("witness", ["recovery point", "durable end"])
def test_whole_batches_that_are_missing_from_the_end_are_damage(data: Path, witness: str) -> None:
    if witness == "recovery point":
        (data / RECOVERY_POINT_FILE).write_bytes(encode_offsets({PARTITION: END}))
    else:
        metadata = encode_partition_metadata(PartitionMetadata(TOPIC_ID, partition=0))
        (data / str(PARTITION) / METADATA_FILE).write_bytes(metadata)
        (data / END_FILES[1]).write_bytes(encode_ends({end_key(TOPIC_ID, 0): END}))
    assert _problems(data) == []
    log = _file(data, SPLIT, Suffix.LOG)
    os.truncate(log, log.stat().st_size // 3 * 2)
    [problem] = [each for each in _problems(data) if each["kind"] == "damage"]
    assert (problem["offset"], problem["end_offset"]) == (END - PER_BATCH, END)
    assert f"was fsynced up to {END}" in _inspect(data, "--verify").stdout


def test_a_wrong_crc_of_records_that_cannot_be_opened_is_told_apart(data: Path) -> None:
    log = _file(data, 0, Suffix.LOG)
    content = bytearray(log.read_bytes())
    content[HEADER_SIZE + 3] ^= 0xFF
    # The CRC is made right again: only opening the records shows that they are not LZ4.
    from crc32c import crc32c

    from cordwood.records.batch import CRC_POSITION, CRC_START, read_header

    size = read_header(content).size
    content[CRC_POSITION:CRC_START] = crc32c(content[CRC_START:size]).to_bytes(4, "big")
    log.write_bytes(content)
    [problem] = _problems(data)
    assert problem["kind"] == "damage"
    assert "offsets 0 to 4" in str(problem["what"])


@pytest.mark.parametrize("suffix", [Suffix.INDEX, Suffix.TIME_INDEX])
def test_an_index_that_is_missing_cut_or_wrong_costs_nothing_but_is_said(data: Path, suffix: Suffix) -> None:
    path = _file(data, 0, suffix)
    sound = path.read_bytes()
    for content in (None, sound[:-1], sound[:-1] + b"\x7f", bytes(len(sound))):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        problems = _problems(data)
        assert {problem["kind"] for problem in problems} == {"derived file"}, content
        assert {problem["file"] for problem in problems} == {str(path)}


def test_a_time_index_that_would_hide_records_is_found(data: Path) -> None:
    path = _file(data, 0, Suffix.TIME_INDEX)
    # "Up to offset 14 nothing is later than 1001" would make a reader of time 1005 begin behind it.
    path.write_bytes((1001).to_bytes(8, "big") + (SPLIT - 1).to_bytes(4, "big"))
    [problem] = _problems(data)
    assert "nothing up to offset 14 is later than 1001" in str(problem["what"])


def test_damaged_snapshots_and_checkpoints_are_found(data: Path) -> None:
    home = data / str(PARTITION)
    _flip(home / segment_file_name(SPLIT, Suffix.SNAPSHOT), 20)
    (home / "leader-epoch-checkpoint").write_text("0\n1\n")
    (data / RECOVERY_POINT_FILE).write_text("0\n2\norders 0 3\n")
    assert {os.path.basename(str(problem["file"])) for problem in _problems(data)} == {
        segment_file_name(SPLIT, Suffix.SNAPSHOT),
        "leader-epoch-checkpoint",
        RECOVERY_POINT_FILE,
    }


def test_a_directory_in_the_place_of_a_file_is_said(data: Path) -> None:
    home = data / str(PARTITION)
    beside = [
        home / segment_file_name(SPLIT, Suffix.SNAPSHOT),
        home / segment_file_name(SPLIT, Suffix.INDEX),
        home / "leader-epoch-checkpoint",
        data / RECOVERY_POINT_FILE,
    ]
    for path in beside:
        path.unlink()
        path.mkdir()
    assert {str(problem["file"]): problem["what"] for problem in _problems(data)} == {
        str(path): "cannot be read: Is a directory" for path in beside
    }
    assert _inspect(data, "--producers").exit_code == ExitCode.DONE
    log = home / segment_file_name(0, Suffix.LOG)
    log.unlink()
    log.mkdir()
    for view in ("--verify", "--batches", "--records", "--producers", None):
        result = _inspect(data, *([view] if view else []), "--json")
        assert result.exit_code == ExitCode.FAILED
        assert json.loads(result.stderr)["error"]["message"] == f"{log} cannot be read: Is a directory"


def test_leader_epochs_that_contradict_the_log_are_found(data: Path) -> None:
    epochs = LeaderEpochs()
    epochs.assign(5, 0)
    (data / str(PARTITION) / "leader-epoch-checkpoint").write_bytes(epochs.to_bytes())
    assert all("leader epoch 4" in str(problem["what"]) for problem in _problems(data))


def test_it_refuses_while_a_broker_holds_the_lock(data: Path) -> None:
    with open(data / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for target in (data, data / str(PARTITION)):
            refused = _inspect(target, "--verify", "--json")
            assert refused.exit_code == ExitCode.FAILED
            assert json.loads(refused.stderr)["error"]["code"] == "DATA_DIRECTORY_IN_USE"
    assert _inspect(data, "--verify").exit_code == ExitCode.DONE


def test_nothing_is_changed_by_looking(data: Path) -> None:
    def everything() -> dict[Path, tuple[bytes, int]]:
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in data.rglob("*") if path.is_file()}

    before = everything()
    for view in ((), ("--verify",), ("--batches",), ("--records",), ("--producers",)):
        assert _inspect(data, *view).exit_code == ExitCode.DONE
    assert everything() == before


def test_what_is_not_there_is_said(data: Path, tmp_path: Path) -> None:
    assert _inspect(tmp_path / "nowhere").exit_code == ExitCode.NOT_FOUND
    assert _inspect(tmp_path).exit_code == ExitCode.NOT_FOUND
    wrong = _inspect(data, "order-0")
    assert wrong.exit_code == ExitCode.NOT_FOUND
    assert "did you mean orders-0?" in wrong.stderr


def test_listing_stops_where_the_log_cannot_be_read(data: Path) -> None:
    _flip(_file(data, SPLIT, Suffix.LOG), HEADER_SIZE + 3)
    result = _inspect(data, "orders-0", "--records", "--json")
    assert result.exit_code == ExitCode.PROBLEM_FOUND
    assert len(result.stdout.splitlines()) == SPLIT
    assert f"from offset {SPLIT} on" in result.stderr


def test_listing_steps_over_damage_before_the_first_wanted_offset(data: Path) -> None:
    _flip(_file(data, 0, Suffix.LOG), HEADER_SIZE + 3)
    result = _inspect(data, "orders-0", "--records", "--json", "--from", PER_BATCH)
    assert result.exit_code == 0
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == list(range(PER_BATCH, END))

"""A start after a crash in the middle of a move, where other directories have the name of the partition."""

import uuid
from collections.abc import Callable

import pytest
from tests.moments import at
from tests.unit.log.log_making import NOW_MS
from tests.unit.log.moving_logs import ORDERS, SETTINGS, TOPIC_ID, A, B, Disk, Machine, Stopped, moving

from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.finishing_moves import UnfinishedMoves
from cordwood.log.directory.moving import LogMove, Phase
from cordwood.log.directory.set_aside import read_note
from cordwood.log.directory.strays import Fate, Known
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicId
from cordwood.segments.partition_metadata import FILE_NAME, PartitionMetadata, encode_partition_metadata
from cordwood.segments.set_aside import NOTE_FILE

C = "/c"
OTHER_ID = uuid.UUID(int=43)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.log.directory.moving.PIECE_BYTES", 300)
    monkeypatch.setattr("cordwood.log.directory.moving.LAST_BYTES", 700)


def settled(machine: Machine) -> LogMove:
    """A move whose copy has a note."""
    steps = moving(machine)
    move = next(step for step in steps if step.phase is Phase.SETTLING)
    next(steps)
    return move


def between_the_names() -> tuple[Disk, Machine]:
    """A process that was killed when the old directory was condemned: the copy in B is the log."""
    disk = Disk()
    machine = Machine(disk)
    machine.write(12)
    steps = moving(machine)
    move = next(step for step in steps if step.phase is Phase.SETTLING)
    next(steps)
    rename = disk.rename

    def stop_at_copy(old: str, new: str) -> None:
        if old == move.path:
            raise Stopped
        rename(old, new)

    disk.rename = stop_at_copy  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        next(steps)
    disk.rename = rename  # type: ignore[method-assign]
    assert not disk.exists(f"{A}/{ORDERS}")
    disk.make_directory(C)
    return disk, machine


def log_in(disk: Disk, path: str, topic_id: TopicId | None) -> None:
    """The directory of a log; without a topic id, its file is lost."""
    disk.make_directory(path)
    disk.replace(f"{path}/00000000000000000000.log", b"")
    if topic_id is not None:
        disk.replace(f"{path}/{FILE_NAME}", encode_partition_metadata(PartitionMetadata(topic_id, None, 0)))


def started(disk: Disk) -> DataDirectories:
    known = Known(lambda partition: TOPIC_ID, {})
    directories = DataDirectories([DataDirectory(disk, path) for path in (A, B, C)])
    directories.open(known=known)
    for directory, partition, verdict in directories.strays(known):
        match verdict.fate:
            case Fate.EMPTY:
                directory.delete_log(partition)
            case Fate.SET_ASIDE:
                directory.set_aside(partition, verdict.reason, NOW_MS)
    return directories


def names(disk: Disk, path: str) -> list[str]:
    return disk.list_directories(path)


@pytest.mark.parametrize("at_path", [B, C])
def test_an_empty_directory_of_its_name_does_not_cost_the_copy_that_is_the_log(at_path: str) -> None:
    disk, machine = between_the_names()
    disk.make_directory(f"{at_path}/{ORDERS}")
    log = started(disk).open_log(ORDERS, TOPIC_ID, SETTINGS, at(NOW_MS))
    assert (log.directory.path, log.offsets.end) == (f"{B}/{ORDERS}", 12)
    assert machine.promised == 12


def test_the_log_of_another_topic_does_not_cost_the_copy_that_is_the_log() -> None:
    disk, _ = between_the_names()
    log_in(disk, f"{C}/{ORDERS}", OTHER_ID)
    log = started(disk).open_log(ORDERS, TOPIC_ID, SETTINGS, at(NOW_MS))
    assert (log.directory.path, log.offsets.end) == (f"{B}/{ORDERS}", 12)
    assert names(disk, C) == [f"{ORDERS}.0-stray"]


def with_files_of_others(disk: Disk) -> None:
    disk.make_directory(f"{B}/{ORDERS}")
    disk.replace(f"{B}/{ORDERS}/january.csv", b"mine")


def with_the_log_of_another_topic(disk: Disk) -> None:
    log_in(disk, f"{B}/{ORDERS}", OTHER_ID)


@pytest.mark.parametrize("prepare", [with_files_of_others, with_the_log_of_another_topic])
def test_a_start_is_refused_if_the_name_of_the_copy_that_is_the_log_is_taken(prepare: Callable[[Disk], None]) -> None:
    disk, _ = between_the_names()
    prepare(disk)
    before = [names(disk, path) for path in (A, B, C)]
    with pytest.raises(StorageFailure, match=f"move {B}/{ORDERS} away"):
        started(disk)
    assert [names(disk, path) for path in (A, B, C)] == before
    disk.rename(f"{B}/{ORDERS}", "/moved away")
    assert started(disk).open_log(ORDERS, TOPIC_ID, SETTINGS, at(NOW_MS)).offsets.end == 12


@pytest.mark.parametrize("topic_id", [TOPIC_ID, None])
def test_a_copy_that_may_be_the_log_is_set_aside_in_doubt(topic_id: TopicId | None) -> None:
    disk, _ = between_the_names()
    log_in(disk, f"{C}/{ORDERS}", topic_id)
    told = UnfinishedMoves([DataDirectory(disk, path) for path in (A, B, C)], all_present=True).finish()
    assert [words for words in told.words if "is set aside" in words]
    assert names(disk, B) == [f"{ORDERS}.0-stray"]
    note = read_note(disk, f"{B}/{ORDERS}.0-stray")
    assert note is not None
    assert (note.partition, note.topic_id, note.log_start_offset) == (ORDERS, TOPIC_ID, 0)
    disk.remove_tree(f"{C}/{ORDERS}")
    disk.rename(f"{B}/{ORDERS}.0-stray", f"{B}/{ORDERS}")
    assert started(disk).open_log(ORDERS, TOPIC_ID, SETTINGS, at(NOW_MS)).offsets.end == 12


def test_a_copy_that_may_be_the_log_and_has_a_damaged_note_stops_the_start() -> None:
    disk, _ = between_the_names()
    (copy,) = (f"{B}/{name}" for name in names(disk, B))
    note = disk.read_bytes(f"{copy}/{NOTE_FILE}")
    disk.replace(f"{copy}/{NOTE_FILE}", bytes(note)[:-9])
    before = [names(disk, path) for path in (A, B, C)]
    with pytest.raises(StorageFailure, match=f"{copy} may be the log of {ORDERS}"):
        started(disk)
    assert [names(disk, path) for path in (A, B, C)] == before
    disk.replace(f"{copy}/{NOTE_FILE}", note)
    assert started(disk).open_log(ORDERS, TOPIC_ID, SETTINGS, at(NOW_MS)).offsets.end == 12


def test_a_copy_with_a_damaged_note_is_left_alone_beside_the_log() -> None:
    disk = Disk()
    machine = Machine(disk)
    machine.write(12)
    copy = settled(machine).path
    disk.replace(f"{copy}/{NOTE_FILE}", b"{}")
    machine.start()
    assert [words for words in machine.done if f"{copy} is left alone" in words]
    assert disk.exists(copy)
    assert machine.home is machine.a
    assert machine.log.offsets.end == 12


def test_the_copy_of_a_deleted_topic_gives_way_to_the_log_of_a_new_one_of_its_name() -> None:
    disk = Disk()
    machine = Machine(disk)
    machine.write(12)
    settled(machine)
    disk.remove_tree(f"{A}/{ORDERS}")
    log_in(disk, f"{B}/{ORDERS}", OTHER_ID)
    directories = [DataDirectory(disk, path) for path in (A, B)]
    known = Known(lambda partition: OTHER_ID, {})
    UnfinishedMoves(directories, all_present=True, known=known).finish()
    assert names(disk, B) == [str(ORDERS), f"{ORDERS}.0-stray"]


def test_a_copy_whose_log_is_there_is_removed() -> None:
    disk = Disk()
    machine = Machine(disk)
    machine.write(12)
    settled(machine)
    machine.start()
    machine.check()
    assert machine.home is machine.a

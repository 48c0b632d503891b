"""The witness of durable ends: after a kill, a log file that lost acknowledged batches is noticed."""

import random
import uuid
from pathlib import Path

import pytest
from tests.moments import at
from tests.unit.log.log_making import NOW_MS, batch_bytes, fill, values

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.offsets import durable_ends
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.log.log import Log
from cordwood.model.errors import DamagedLog
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.records import records_in
from cordwood.segments.end_witness import ENTRY_SIZE, FILE_NAMES, decode_ends, end_key
from cordwood.segments.names import Suffix, segment_file

PATH = "/broker/data"
WITNESSES = [f"{PATH}/{name}" for name in FILE_NAMES]
TOPIC_ID = uuid.UUID(int=42)
ORDERS = TopicPartition("orders", 0)
ONE_SEGMENT = TopicSettings(index_interval_bytes=200)
SMALL = TopicSettings(segment_bytes=1000, index_interval_bytes=200)


def opened(filesystem: CrashingFilesystem) -> DataDirectory:
    directory = DataDirectory(filesystem, PATH)
    directory.open()
    return directory


def log_of(directory: DataDirectory, partition: TopicPartition = ORDERS, settings: TopicSettings = ONE_SEGMENT) -> Log:
    return directory.open_log(partition, TOPIC_ID, settings, at(NOW_MS))


def killed(directory: DataDirectory, filesystem: CrashingFilesystem) -> DataDirectory:
    """The directory as the next process finds it."""
    directory.close(clean=False)
    return opened(filesystem)


def acknowledge(directory: DataDirectory, log: Log, batches: int) -> list[bytes]:
    """Appends and flushes as a broker does, one batch after the other."""
    written = []
    for _ in range(batches):
        written += fill(log, 1)
        flush(directory, log)
    return written


def flush(directory: DataDirectory, *logs: Log) -> None:
    tickets = [ticket for log in logs if (ticket := log.begin_flush()) is not None]
    for ticket in tickets:
        ticket.sync()
    directory.note_durable(tickets)
    for ticket in tickets:
        ticket.finish()


def lose_end(filesystem: CrashingFilesystem, batches: int, *, of: int, base_offset: int = 0) -> None:
    """Cuts a segment file at a boundary of its batches, which are of one size."""
    file = filesystem.open(segment_file(f"{PATH}/orders-0", base_offset, Suffix.LOG))
    file.truncate(file.size // of * (of - batches))


def values_of_batch(log: Log, offset: int) -> list[bytes]:
    return [record.value or b"" for record in records_in(batch_bytes(log, offset, max_bytes=1))]


def flip(filesystem: CrashingFilesystem, path: str, place: int) -> None:
    filesystem.corrupt(path, place, bytes([filesystem.read_bytes(path)[place] ^ 4]))


def damaged(log: Log) -> list[tuple[int, int]]:
    return [(each.first_offset, each.end_offset) for each in log.reports.damage]


@pytest.mark.parametrize("checkpoint_at", [0, 4])
def test_an_end_that_was_lost_at_a_batch_boundary_is_reported_and_its_offsets_are_not_used_again(
    checkpoint_at: int,
) -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    log = log_of(directory)
    written = acknowledge(directory, log, checkpoint_at)
    directory.checkpoint()
    written += acknowledge(directory, log, 10 - checkpoint_at)
    lose_end(filesystem, 3, of=10)
    # Two kills: the report, and the offsets, outlive a start that took no checkpoint.
    for life in range(2):
        directory = killed(directory, filesystem)
        log = log_of(directory)
        assert damaged(log) == [(7, 10)]
        assert log.offsets.end == 10 + life
        assert [value for offset in range(7) for value in values_of_batch(log, offset)] == written[:7]
        with pytest.raises(DamagedLog):
            values(log, 7)
        assert acknowledge(directory, log, 1) == values(log, 10 + life)
    directory.close()
    log = log_of(opened(filesystem))
    assert log.offsets.end == 12
    assert len(values(log, 10)) == 2


def test_a_whole_log_that_is_gone_before_its_first_checkpoint_is_reported() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    acknowledge(directory, log_of(directory), 5)
    filesystem.remove(segment_file(f"{PATH}/orders-0", 0, Suffix.LOG))
    directory = killed(directory, filesystem)
    log = log_of(directory)
    assert damaged(log) == [(0, 5)]
    assert log.offsets.end == 5
    with pytest.raises(DamagedLog):
        values(log, 0)
    written = acknowledge(directory, log, 2)
    for offset in (0, 4):
        with pytest.raises(DamagedLog):
            values(log, offset)
    assert values(log, 5) == written
    assert values(log_of(killed(directory, filesystem)), 5) == written


@pytest.mark.parametrize("stop_cleanly", [True, False])
def test_the_offsets_of_a_log_that_is_gone_outlive_the_witness(stop_cleanly: bool) -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    acknowledge(directory, log_of(directory), 10)
    directory.close(clean=False)
    filesystem.remove_tree(f"{PATH}/orders-0")
    for _ in range(3):
        directory = opened(filesystem)
        log = log_of(directory)
        assert (log.offsets.end, damaged(log)) == (10, [(0, 10)])
        acknowledge(directory, log_of(directory, TopicPartition("orders", 1)), 1)
        directory.checkpoint()
        assert end_key(TOPIC_ID, 0) not in ends(filesystem)
        directory.close(clean=stop_cleanly)


@pytest.mark.parametrize("kept", [0, 2])
def test_a_closed_segment_that_lost_its_end_costs_no_later_segment(kept: int) -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    log = log_of(directory, settings=SMALL)
    written = acknowledge(directory, log, 20)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 2
    lose_end(filesystem, bases[1] - kept, of=bases[1])
    log = log_of(killed(directory, filesystem), settings=SMALL)
    assert damaged(log) == [(kept, bases[1])]
    assert values(log, bases[1]) == written[bases[1] :]


def test_acknowledged_batches_behind_a_flipped_bit_are_served() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    log = log_of(directory)
    written = acknowledge(directory, log, 10)
    file = filesystem.open(segment_file(f"{PATH}/orders-0", 0, Suffix.LOG))
    size = file.size // 10
    flip(filesystem, file.path, 4 * size + 70)
    log = log_of(killed(directory, filesystem))
    assert damaged(log) == [(4, 5)]
    assert values(log, 5) == written[5:]


def test_a_torn_tail_that_nobody_was_told_of_is_cut_as_before() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    log = log_of(directory)
    written = acknowledge(directory, log, 9)
    fill(log, 1)
    file = filesystem.open(segment_file(f"{PATH}/orders-0", 0, Suffix.LOG))
    file.truncate(file.size - 5)
    log = log_of(killed(directory, filesystem))
    assert not log.reports.damage
    assert [cut.first_offset for cut in log.reports.recovery.cuts] == [9]
    assert values(log) == written


def test_damage_to_the_witness_costs_nothing() -> None:
    chance = random.Random(3)
    for _ in range(200):
        filesystem = CrashingFilesystem()
        directory = opened(filesystem)
        written = acknowledge(directory, log_of(directory), 8)
        file = filesystem.open(WITNESSES[0])
        place = chance.randrange(file.size)
        if chance.random() < 0.3:
            file.truncate(place)
        else:
            flip(filesystem, file.path, place)
        directory = killed(directory, filesystem)
        log = log_of(directory)
        assert not log.reports.damage
        assert values(log) == written
        acknowledge(directory, log, 1)
        assert ends(filesystem) == {end_key(TOPIC_ID, 0): 9}, "entries behind a torn one are read"


def ends(filesystem: CrashingFilesystem) -> dict[bytes, int]:
    return decode_ends(filesystem.read_bytes(path) for path in WITNESSES)


def test_no_power_cut_leaves_a_witness_of_more_than_the_log_has() -> None:
    for seed in range(150):
        filesystem = CrashingFilesystem(seed)
        chance = random.Random(seed)
        written: list[bytes] = []
        for _ in range(4):
            directory = opened(filesystem)
            log = log_of(directory, settings=SMALL)
            assert not log.reports.damage
            assert len(values(log)) >= len(written)
            for _ in range(chance.randrange(12)):
                if chance.random() < 0.2:
                    directory.checkpoint()
                fill(log, chance.randint(1, 3))
                if chance.random() < 0.7:
                    flush(directory, log)
            written = values(log)[: log.offsets.durable_end]
            filesystem.crash()


def test_the_loss_of_records_that_a_recovery_brought_back_is_reported() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    log = log_of(directory)
    acknowledge(directory, log, 5)
    fill(log, 5)
    directory = killed(directory, filesystem)
    assert len(values(log_of(directory))) == 10
    lose_end(filesystem, 3, of=10)
    log = log_of(killed(directory, filesystem))
    assert (log.offsets.end, damaged(log)) == (10, [(7, 10)])


@pytest.mark.parametrize("batches", [3, 10])
def test_a_loss_that_was_reported_is_not_taken_back_by_a_power_cut(batches: int) -> None:
    for seed in range(20):
        filesystem = CrashingFilesystem(seed)
        directory = opened(filesystem)
        acknowledge(directory, log_of(directory), 10)
        directory.close(clean=False)
        lose_end(filesystem, batches, of=10)
        filesystem.open(segment_file(f"{PATH}/orders-0", 0, Suffix.LOG)).sync()
        for _ in range(2):
            directory = opened(filesystem)
            log = log_of(directory)
            assert (log.offsets.end, damaged(log)) == (10, [(10 - batches, 10)])
            filesystem.crash()
        directory = opened(filesystem)
        written = acknowledge(directory, log_of(directory), 5)
        filesystem.crash()
        assert values(log_of(opened(filesystem)), 10) == written


def test_one_sync_of_the_witness_does_for_all_lost_logs_of_a_start() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    partitions = [TopicPartition("orders", number) for number in range(3)]
    for partition in partitions:
        acknowledge(directory, log_of(directory, partition), 1)
        filesystem.cut(segment_file(f"{PATH}/{partition}", 0, Suffix.LOG), 0)
    directory = killed(directory, filesystem)
    syncs = []
    for partition in partitions:
        before = filesystem.syncs
        assert damaged(log_of(directory, partition)) == [(0, 1)]
        syncs.append(filesystem.syncs - before)
    assert syncs[0] > syncs[1] == syncs[2]


def test_a_truncation_is_no_loss() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    log, other = log_of(directory), log_of(directory, TopicPartition("orders", 1))
    acknowledge(directory, other, 3)
    written = acknowledge(directory, log, 10)
    log.truncate_to(6)
    for _ in range(2):
        log = log_of(directory)
        assert not log.reports.damage
        assert values(log) == written[:6]
        filesystem.crash()
        directory = opened(filesystem)


def test_a_checkpoint_empties_the_witness_and_keeps_ends_of_logs_that_are_not_open_yet() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    first, second = log_of(directory), log_of(directory, TopicPartition("orders", 1))
    for log in (first, second):
        acknowledge(directory, log, 5)
    directory = killed(directory, filesystem)
    for _ in range(3):
        acknowledge(directory, log_of(directory), 1)
        directory.checkpoint()
    assert ends(filesystem) == {end_key(TOPIC_ID, 1): 5}
    log_of(directory, TopicPartition("orders", 1))
    for _ in range(2):
        directory.checkpoint()
    assert ends(filesystem) == {}


def test_ends_noted_while_a_checkpoint_is_written_outlive_it() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    log = log_of(directory)
    acknowledge(directory, log, 5)
    for _ in range(3):
        checkpoint = directory.checkpoints.begin()
        acknowledge(directory, log, 1)
        checkpoint.write()
        directory.checkpoints.finish(checkpoint)()
        assert ends(filesystem) == {end_key(TOPIC_ID, 0): log.offsets.end}
    # A checkpoint that fails before it is saved keeps all entries.
    directory.checkpoints.begin()
    directory.checkpoints.begin()
    assert ends(filesystem) == {end_key(TOPIC_ID, 0): log.offsets.end}


def test_the_witness_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_ends, "MAX_FILE_BYTES", 10 * ENTRY_SIZE)
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    logs = [log_of(directory, TopicPartition("orders", number)) for number in range(4)]
    for _ in range(10):
        for log in logs:
            acknowledge(directory, log, 1)
    assert sum(filesystem.open(path).size for path in WITNESSES) <= 10 * ENTRY_SIZE
    assert ends(filesystem) == {end_key(TOPIC_ID, number): 10 for number in range(4)}


def test_a_witness_that_is_written_anew_keeps_the_ends_of_the_last_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_ends, "MAX_FILE_BYTES", 10 * ENTRY_SIZE)
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    quiet, busy = ORDERS, TopicPartition("orders", 1)
    acknowledge(directory, log_of(directory, quiet), 5)
    directory = killed(directory, filesystem)
    log_of(directory, quiet)
    acknowledge(directory, log_of(directory, busy), 20)
    assert ends(filesystem) == {end_key(TOPIC_ID, 0): 5, end_key(TOPIC_ID, 1): 20}


def test_a_truncation_before_the_first_flush_of_a_life_is_no_loss() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    acknowledge(directory, log_of(directory), 5)
    directory = killed(directory, filesystem)
    log_of(directory).truncate_to(3)
    log = log_of(killed(directory, filesystem))
    assert (log.offsets.end, log.reports.damage) == (3, [])


@pytest.mark.parametrize("name", FILE_NAMES)
@pytest.mark.parametrize("odd", ["a directory", "a link to nowhere"])
def test_a_witness_that_cannot_be_opened_keeps_nobody_from_starting(tmp_path: Path, name: str, odd: str) -> None:
    filesystem = OsFilesystem(str(tmp_path))
    directory = DataDirectory(filesystem, str(tmp_path))
    directory.open()
    written = acknowledge(directory, log_of(directory), 5)
    directory.close()
    (tmp_path / name).unlink()
    if odd == "a directory":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).symlink_to(tmp_path / "gone" / "file")
    directory = DataDirectory(filesystem, str(tmp_path))
    directory.open()
    assert directory.clean
    assert [problem for problem in directory.problems if name in problem] or odd == "a link to nowhere"
    log = log_of(directory)
    written += acknowledge(directory, log, 2)
    directory.checkpoint()
    assert [value for offset in range(7) for value in values_of_batch(log, offset)] == written
    directory.close()
    filesystem.close()


def test_a_new_topic_of_the_same_name_has_no_end_of_the_old_one() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    acknowledge(directory, log_of(directory), 5)
    directory.delete_log(ORDERS)
    directory = killed(directory, filesystem)
    log = directory.open_log(ORDERS, uuid.UUID(int=43), ONE_SEGMENT, at(NOW_MS))
    assert (log.offsets.end, log.reports.damage) == (0, [])

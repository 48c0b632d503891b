"""A log that moves to another data directory: whatever happens on the way, each partition has one whole log."""

import uuid
from collections.abc import Callable

import pytest
from tests.unit.log.log_making import append, batch_bytes, values
from tests.unit.log.moving_logs import ORDERS, SETTINGS, A, B, Disk, Machine, Stopped, move_whole, moving

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.finishing_moves import UnfinishedMoves
from cordwood.log.directory.moving import LogMove, Phase
from cordwood.model.errors import DiskFull, StorageFailure, SyncFailure
from cordwood.records.batch import batches_in
from cordwood.segments.dropped_deletions import Dropped
from cordwood.segments.end_witness import FILE_NAMES as WITNESSES
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.names import Stage, Suffix, future_name, future_part, segment_file


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.log.directory.moving.PIECE_BYTES", 300)
    monkeypatch.setattr("cordwood.log.directory.moving.LAST_BYTES", 700)


def test_a_log_moves_there_and_back_while_it_is_written_and_read() -> None:
    machine = Machine(Disk())
    machine.write(30)
    for _ in range(2):
        move_whole(machine, lambda: machine.write(1))
        assert machine.log.directory.path == f"{machine.home.path}/{ORDERS}"
        machine.check()
        machine.write()
    machine.stop()
    machine.start()
    assert machine.home is machine.a
    machine.check()
    assert machine.log.offsets.end == len(machine.written)
    assert machine.log.reports.recovery.clean
    assert machine.done == []


def test_a_reader_with_a_slice_of_the_old_files_reads_on_until_they_are_removed() -> None:
    machine = Machine(Disk())
    machine.write(30)
    old = machine.log.read(3, 500, end_offset=20, minimum_one_batch=True)
    assert old is not None
    before = old.file.read(old.position, old.length)
    steps = moving(machine)
    move = next(step for step in steps if step.phase is Phase.SWITCHED)
    assert move.target is machine.b
    assert old.file.read(old.position, old.length) == before
    assert batch_bytes(machine.log, 3, 500) == before


def test_a_sync_that_is_under_way_during_the_switch_does_not_fail() -> None:
    """A thread may come to the name of the log's directory at any moment, also when it is renamed already."""
    disk = Disk()
    machine = Machine(disk)
    machine.write(30)
    steps = moving(machine)
    move = next(step for step in steps if step.phase is Phase.SETTLING)
    next(steps)
    machine.log.roll()
    machine.write(1, flushed=False)
    ticket = machine.log.begin_flush()
    assert ticket is not None
    assert ticket.directories, "a new segment has a new name"
    real_change, synced = disk.change, 0

    def change() -> None:
        nonlocal synced
        real_change()
        disk.change = real_change  # type: ignore[method-assign]
        ticket.sync()
        synced += 1
        disk.change = change  # type: ignore[method-assign]

    disk.change = change  # type: ignore[method-assign]
    next(steps)
    disk.change = real_change  # type: ignore[method-assign]
    assert move.phase is Phase.SWITCHED
    assert synced > 4
    ticket.sync()
    ticket.finish()
    assert ticket.data_directory == A, "a failure of this sync is one of the disk that the log left"
    machine.check()


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_stop_before_any_change_of_the_disk_leaves_one_whole_log(power_cut: bool) -> None:
    stopped_at = 0
    while True:
        disk = Disk(seed=stopped_at)
        machine = Machine(disk)
        machine.write(8)
        machine.write(1, flushed=False)
        disk.left = stopped_at
        try:
            move_whole(machine, lambda m=machine: m.write(1, flushed=len(m.written) % 3 != 0))  # type: ignore[misc]
        except Stopped:
            pass
        else:
            assert stopped_at > 100, "nothing was counted"
            return
        disk.left = None
        if power_cut:
            disk.crash()
        machine.start()
        machine.check()
        machine.write()
        machine.stop()
        machine.start()
        machine.check()
        stopped_at += 1


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_stop_while_a_start_finishes_a_move_leaves_one_whole_log(power_cut: bool) -> None:
    """The first stop comes between the two names: the copy is the log."""
    for stopped_at in range(40):
        disk = Disk(seed=stopped_at)
        machine = Machine(disk)
        machine.write(12)
        steps = moving(machine)
        move = next(step for step in steps if step.phase is Phase.SETTLING)
        next(steps)
        real_rename = disk.rename

        def rename(old: str, new: str, move: LogMove = move, real: Callable[[str, str], None] = real_rename) -> None:
            if old == move.path:
                raise Stopped
            real(old, new)

        disk.rename = rename  # type: ignore[method-assign]
        with pytest.raises(Stopped):
            next(steps)
        disk.rename = real_rename  # type: ignore[method-assign]
        if power_cut:
            disk.crash()
        assert not disk.exists(f"{A}/{ORDERS}")
        disk.left = stopped_at
        try:
            machine.start()
        except Stopped:
            disk.left = None
            if power_cut:
                disk.crash()
            machine.start()
        disk.left = None
        assert machine.home is machine.b
        machine.check()


def test_a_log_that_is_cut_on_the_way_is_copied_anew() -> None:
    for cut_at_step in range(12):
        machine = Machine(Disk())
        machine.write(20)
        for number, move in enumerate(moving(machine)):
            if number == cut_at_step and move.phase is not Phase.SWITCHED:
                cut = machine.home.cuts.begin(machine.log, 7, anew=False)
                cut()
                assert machine.home.cuts.end(machine.log)
                del machine.written[7:]
                machine.write(4)
                machine.written[7:] = [value.replace(b".", b"+") for value in machine.written[7:]]
                machine.log.truncate_to(7)
                for value in machine.written[7:]:
                    append(machine.log, value)
                machine.flush()
        machine.check()
        assert machine.home is machine.b
        machine.stop()
        machine.start()
        machine.check()
        assert machine.log.offsets.end == 11


def test_segments_that_retention_drops_on_the_way_do_not_come_back() -> None:
    for drop_at_step in range(12):
        machine = Machine(Disk())
        machine.write(30)
        machine.checkpoint()
        for number, move in enumerate(moving(machine)):
            if number == drop_at_step and move.phase is not Phase.SWITCHED:
                machine.log.delete_records_before(16)
                machine.home.checkpoints.save_offsets([machine.log])()
        assert machine.log.offsets.start == 16 or drop_at_step > 10
        bases = [segment.base_offset for segment in machine.log.segments]
        machine.check()
        machine.disk.crash()  # type: ignore[attr-defined]
        machine.start()
        machine.check()
        assert [segment.base_offset for segment in machine.log.segments] == bases


def test_a_segment_that_is_replaced_on_the_way_is_copied_anew() -> None:
    machine = Machine(Disk())
    machine.write(30)
    machine.checkpoint()
    steps = moving(machine)
    for _ in range(6):
        move = next(steps)
    assert move.phase is Phase.COPYING
    first, second = machine.log.segments[0], machine.log.segments[1]
    data = machine.disk.read_bytes(first.path(Suffix.LOG))
    (_, kept_batch), *_ = batches_in(data)
    for suffix, content in ((Suffix.LOG, data[: kept_batch.size]), (Suffix.INDEX, b""), (Suffix.TIME_INDEX, b"")):
        machine.disk.replace(segment_file(f"{A}/{ORDERS}", first.base_offset, suffix, Stage.CLEANED), content)
    machine.home.expect_compaction(ORDERS)()
    machine.log.replace_segments([first.base_offset], [first.base_offset])
    kept = values(machine.log)
    assert kept == [machine.written[0], *machine.written[second.base_offset :]]
    for _ in steps:
        pass
    assert values(machine.log) == kept
    machine.disk.crash()  # type: ignore[attr-defined]
    machine.start()
    assert machine.home is machine.b
    assert (values(machine.log), machine.log.reports.damage) == (kept, [])


def test_the_index_of_a_segment_that_is_replaced_on_the_way_is_copied_anew() -> None:
    machine = Machine(Disk())
    machine.write(40)
    machine.checkpoint()
    steps = moving(machine)
    for _ in range(6):
        move = next(steps)
    assert move.phase is Phase.COPYING
    first = machine.log.segments[0]
    assert machine.disk.exists(segment_file(move.path, first.base_offset, Suffix.INDEX))
    data = machine.disk.read_bytes(first.path(Suffix.LOG))
    (_, dropped), *_ = batches_in(data)
    indexes = SegmentIndexes(first.base_offset, SETTINGS.index_interval_bytes)
    for position, batch in batches_in(data[dropped.size :]):
        indexes.note(position, batch.size, batch.last_offset, batch.max_timestamp)
    indexes.close()
    cleaned = {
        Suffix.LOG: data[dropped.size :],
        Suffix.INDEX: indexes.offsets.to_bytes(),
        Suffix.TIME_INDEX: indexes.times.to_bytes(),
    }
    for suffix, content in cleaned.items():
        machine.disk.replace(segment_file(f"{A}/{ORDERS}", first.base_offset, suffix, Stage.CLEANED), content)
    machine.home.expect_compaction(ORDERS)()
    machine.log.replace_segments([first.base_offset], [first.base_offset])
    for _ in steps:
        pass
    assert machine.home is machine.b
    copied = {each: machine.disk.read_bytes(machine.log.segments[0].path(each)) for each in cleaned}
    assert copied == cleaned


def test_a_move_that_finds_no_space_leaves_the_log_where_it_is() -> None:
    disk = Disk()
    machine = Machine(disk)
    machine.write(30)
    disk.free_for_appends = 1500
    steps = moving(machine)
    move = next(steps)
    with pytest.raises(DiskFull):
        for _ in steps:
            pass
    move.give_up()()
    disk.free_for_appends = None
    machine.write()
    machine.check()
    assert machine.home is machine.a


def test_a_dropped_segment_excuses_one_failure_and_never_a_full_disk() -> None:
    machine = Machine(Disk())
    machine.write(30)
    machine.checkpoint()
    steps = moving(machine)
    for _ in range(5):
        move = next(steps)
    assert not move.can_go_on(StorageFailure("unreadable"))
    machine.log.delete_records_before(16)
    assert not move.can_go_on(DiskFull("full"))
    assert move.can_go_on(StorageFailure("the dropped segment is gone"))
    assert not move.can_go_on(StorageFailure("unreadable"))
    for _ in steps:
        pass
    assert machine.home is machine.b
    machine.check()


@pytest.mark.parametrize("gone", [A, B])
def test_a_directory_that_is_gone_at_the_switch_fails_before_the_move_is_decided(gone: str) -> None:
    disk = Disk()
    machine = Machine(disk)
    machine.write(30)
    steps = moving(machine)
    move = next(step for step in steps if step.phase is Phase.SETTLING)
    next(steps)

    def check_present(path: str) -> None:
        if path == gone:
            raise SyncFailure(f"{path} is gone", path)

    disk.check_present = check_present  # type: ignore[method-assign]
    with pytest.raises(SyncFailure) as failure:
        next(steps)
    assert failure.value.root == gone
    assert not move.decided
    move.give_up()()
    machine.check()


def test_a_move_that_is_given_up_can_begin_again() -> None:
    machine = Machine(Disk())
    machine.write(30)
    steps = moving(machine)
    move = next(step for step in steps if step.phase is Phase.SETTLING)
    move.give_up()()
    machine.write()
    machine.check()
    machine.checkpoint()
    assert machine.log.offsets.saved_recovery_point == len(machine.written)
    move_whole(machine)
    assert machine.home is machine.b
    machine.check()


def test_producers_and_compaction_come_along() -> None:
    machine = Machine(Disk())
    append(machine.log, b"first", producer=7, sequence=0)
    machine.written = [b"first"]
    machine.home.expect_compaction(ORDERS)()
    machine.home.set_clean_offset(ORDERS, 1)
    machine.log.segments.save_dropped(Dropped(815, 4))
    move_whole(machine)
    assert append(machine.log, b"first", producer=7, sequence=0).duplicate
    assert machine.b.clean_offset(ORDERS) == 1
    machine.disk.crash()  # type: ignore[attr-defined]
    machine.start()
    assert append(machine.log, b"first", producer=7, sequence=0).duplicate
    assert machine.b.clean_offset(ORDERS) == 1
    assert machine.log.segments.ever_compacted
    assert machine.log.segments.dropped == Dropped(815, 4)


def test_a_copy_whose_log_may_be_in_a_missing_directory_is_left_alone() -> None:
    machine = Machine(Disk())
    machine.write(30)
    steps = moving(machine)
    next(step for step in steps if step.phase is Phase.SETTLING)
    next(steps)
    only = DataDirectory(machine.disk, B)
    (told,) = UnfinishedMoves([only], all_present=False).finish().words
    assert "left alone" in told
    assert [future_part(name) for name in machine.disk.list_directories(B)] == [str(ORDERS)]
    machine.start()
    assert machine.home is machine.a
    machine.check()


def test_two_copies_that_could_each_be_the_log_are_refused() -> None:
    machine = Machine(Disk())
    machine.write(30)
    steps = moving(machine)
    move = next(step for step in steps if step.phase is Phase.SETTLING)
    next(steps)
    copy = future_name(str(ORDERS), "1" * 32)
    machine.disk.make_directory(f"{A}/{copy}")
    for name in machine.disk.list(move.path):
        machine.disk.replace(f"{A}/{copy}/{name}", machine.disk.read_bytes(f"{move.path}/{name}"))
    machine.disk.rename(f"{A}/{ORDERS}", f"{A}/lost+found")
    with pytest.raises(StorageFailure, match="2 copies"):
        machine.start()


def test_the_longest_topic_name_fits() -> None:
    name = future_name(f"{'n' * 249}-99999", uuid.uuid4().hex)
    assert len(name) <= 255
    assert future_part(name) is not None
    assert future_part("orders-0") is None


def test_a_log_without_files_moves_too() -> None:
    machine = Machine(Disk())
    move_whole(machine)
    assert machine.home is machine.b
    machine.write()
    machine.check()
    assert machine.log.directory.path == f"{B}/{ORDERS}"


def test_a_clean_stop_in_the_middle_of_a_move_needs_no_recovery() -> None:
    machine = Machine(Disk())
    machine.write(30)
    steps = moving(machine)
    next(step for step in steps if step.phase is Phase.SETTLING)
    machine.write()
    machine.stop()
    machine.start()
    assert (machine.home, machine.home.clean) == (machine.a, True)
    machine.check()


def test_known_damage_is_told_of_the_file_where_it_is_now() -> None:
    disk = Disk()
    machine = Machine(disk)
    machine.write(30)
    machine.checkpoint()
    damaged = machine.log.segments[1]
    disk.corrupt(damaged.file.path, 70, b"\xff\xff\xff")
    damaged.examine(machine.log.segments.end_of(1), SETTINGS.index_interval_bytes)
    machine.log.reports.note_holes(damaged)
    before = machine.log.reports.damage
    assert before
    move_whole(machine)
    after = machine.log.reports.damage
    assert [each.file for each in after] == [damaged.file.path] * len(before)
    assert [(each.first_offset, each.end_offset) for each in after] == [
        (each.first_offset, each.end_offset) for each in before
    ]
    assert damaged.file.path.startswith(B)


@pytest.mark.parametrize("seed", range(8))
def test_the_old_directory_claims_nothing_of_a_log_that_is_lost_with_its_new_directory(seed: int) -> None:
    """The process is killed behind the switch, the power fails later, and the new directory is lost."""
    disk = Disk(seed)
    machine = Machine(disk)
    machine.write(12)
    for name in WITNESSES:
        disk.open(f"{A}/{name}").sync()
    disk.sync_directory(A)

    def stop_behind_the_switch() -> None:
        if machine.home is machine.b:
            raise Stopped

    with pytest.raises(Stopped):
        move_whole(machine, stop_behind_the_switch)
    machine.start()
    assert machine.home is machine.b
    disk.crash()
    disk.remove_tree(B)
    disk.sync_directory("/")
    machine.start()
    assert (machine.home, machine.log.offsets.end, machine.log.reports.damage) == (machine.a, 0, [])

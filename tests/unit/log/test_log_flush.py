"""Three ends: appended, durable, checkpointed. What moves them, and what a power cut leaves."""

import pytest
from tests.moments import at
from tests.unit.log.log_making import (
    DATA,
    DIRECTORY,
    NOW_MS,
    ONE_SEGMENT,
    append,
    beside,
    delete,
    disk,
    fill,
    flush,
    open_log,
    reopen,
    values,
)

from cordwood.log.log import Log
from cordwood.log.upkeep.checkpoint import write_checkpoints
from cordwood.model.errors import SyncFailure
from cordwood.segments.names import Suffix


def ends(log: Log) -> tuple[int, int, int]:
    return log.offsets.recovery_point, log.offsets.durable_end, log.offsets.end


def test_the_three_ends_move_one_after_the_other() -> None:
    log = open_log(disk())
    append(log, b"a", b"b")
    assert ends(log) == (0, 0, 2)
    flush(log)
    assert ends(log) == (0, 2, 2)
    assert log.begin_flush() is None
    append(log)
    log.checkpoint()
    assert ends(log) == (3, 3, 3)
    assert log.begin_checkpoint() is None


def test_what_is_appended_during_a_flush_waits_for_the_next() -> None:
    log = open_log(disk())
    append(log)
    ticket = log.begin_flush()
    assert ticket is not None
    append(log)
    ticket.sync()
    ticket.finish()
    assert log.offsets.durable_end == 1
    flush(log)
    assert log.offsets.durable_end == 2


def test_a_flush_that_ends_late_never_takes_durability_back() -> None:
    log = open_log(disk())
    append(log)
    first = log.begin_flush()
    append(log)
    second = log.begin_flush()
    assert first is not None
    assert second is not None
    second.sync()
    second.finish()
    first.sync()
    first.finish()
    assert log.offsets.durable_end == 2


def test_a_flush_covers_every_segment_that_has_unsynced_batches_and_the_new_names() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    append(log)
    ticket = log.begin_flush()
    assert ticket is not None
    assert ticket.directories == [DATA, DIRECTORY]
    fill(log, 30)
    ticket.sync()
    ticket.finish()
    later = log.begin_flush()
    assert later is not None
    assert len(later.files) == len(log.segments)
    assert later.directories, "the new segments' names are not durable yet"
    later.sync()
    later.finish()
    append(log)
    last = log.begin_flush()
    assert last is not None
    assert (len(last.files), last.directories) == (1, [])


def test_flushed_batches_survive_every_power_cut() -> None:
    for seed in range(30):
        filesystem = disk(seed)
        log = open_log(filesystem)
        written = fill(log, 15)
        flush(log)
        fill(log, 5)
        filesystem.crash()
        log = open_log(filesystem, clean=False)
        assert log.offsets.end >= 15
        assert values(log)[:15] == written


def test_a_failed_sync_is_an_error_and_moves_nothing() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    append(log)
    ticket = log.begin_flush()
    assert ticket is not None
    filesystem.fail_sync_at = filesystem.syncs + 1
    with pytest.raises(SyncFailure):
        ticket.sync()
    assert log.offsets.durable_end == 0


def test_a_flush_of_a_log_that_was_cut_meanwhile_promises_nothing() -> None:
    log = open_log(disk(), ONE_SEGMENT)
    fill(log, 10)
    ticket = log.begin_flush()
    assert ticket is not None
    log.truncate_to(3)
    fill(log, 7)
    ticket.sync()
    ticket.finish()
    assert log.offsets.durable_end <= 3


def test_a_flush_of_a_log_that_was_deleted_meanwhile_fails_nobody() -> None:
    log = open_log(disk())
    fill(log, 3)
    ticket = log.begin_flush()
    assert ticket is not None
    delete(log)
    ticket.sync()


@pytest.mark.parametrize("step", ["write", "sync", "install", "finish"])
@pytest.mark.parametrize("what", ["cut", "deleted"])
def test_a_checkpoint_of_a_log_that_was_cut_or_deleted_meanwhile_is_void(step: str, what: str) -> None:
    filesystem = disk()
    log = open_log(filesystem)
    written = fill(log, 20)
    append(log, producer=4, sequence=0)
    ticket = log.begin_checkpoint()
    assert ticket is not None
    for name in ("write", "sync", "install", "finish"):
        if name == step:
            log.truncate_to(12) if what == "cut" else delete(log)
        if name == "finish":
            ticket.finish()
        else:
            getattr(ticket, name)()
    if what == "deleted":
        assert filesystem.list(DATA) == []
        return
    assert log.offsets.recovery_point <= 12
    written = [*written[:12], *fill(log, 15)]
    flush(log)
    log = open_log(filesystem, recovery_point=log.offsets.recovery_point, clean=False)
    assert values(log) == written
    assert not log.replayed.producers.describe(), "a snapshot of batches that are no more is not believed"


def test_a_checkpoint_writes_only_what_is_new_to_an_index() -> None:
    filesystem = disk()
    log = open_log(filesystem, ONE_SEGMENT)
    fill(log, 20)
    log.checkpoint()
    first = filesystem.read_bytes(beside(Suffix.INDEX))
    fill(log, 20)
    ticket = log.begin_checkpoint()
    assert ticket is not None
    index = next(write for write in ticket.indexes if write.path == beside(Suffix.INDEX))
    assert index.keep_bytes == len(first)
    assert len(index.data) < 2 * len(first) + 16
    write_checkpoints(filesystem, [ticket])
    ticket.finish()
    assert filesystem.read_bytes(beside(Suffix.INDEX)).startswith(first)


def test_a_checkpoint_during_which_the_log_rolls_and_grows_is_still_right() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    written = fill(log, 5)
    ticket = log.begin_checkpoint()
    assert ticket is not None
    written += fill(log, 30)
    write_checkpoints(filesystem, [ticket])
    ticket.finish()
    assert log.offsets.recovery_point == 5
    assert log.segments.closing, "segments that were rolled meanwhile still have unsaved entries"
    log.checkpoint()
    assert not log.segments.closing
    log = reopen(log, clean=True)
    assert values(log) == written
    assert log.reports.recovery.clean


def test_checkpoints_of_many_logs_share_their_syncs() -> None:
    filesystem = disk()
    logs = []
    for number in range(20):
        log = Log.open(
            filesystem,
            f"{DATA}/many-{number}",
            open_log(filesystem).partition,
            ONE_SEGMENT,
            recovery_point=0,
            clean=True,
            now=at(NOW_MS),
        )
        fill(log, 3)
        logs.append(log)
    tickets = [ticket for log in logs if (ticket := log.begin_checkpoint()) is not None]
    before = filesystem.syncs
    write_checkpoints(filesystem, tickets)
    assert filesystem.syncs - before == 2
    for ticket in tickets:
        ticket.finish()
    assert {log.offsets.recovery_point for log in logs} == {3}


def test_old_snapshots_go_and_those_at_segment_bases_stay() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    for _ in range(6):
        fill(log, 5)
        log.checkpoint()
    snapshots = [int(name[:20]) for name in filesystem.list(DIRECTORY) if name.endswith(".snapshot")]
    bases = [segment.base_offset for segment in log.segments]
    assert snapshots == sorted({*bases[1:], 30})


def test_an_index_file_that_somebody_removed_is_made_again_after_the_next_start() -> None:
    filesystem = disk()
    log = open_log(filesystem, ONE_SEGMENT)
    written = fill(log, 20)
    log.checkpoint()
    filesystem.remove(beside(Suffix.INDEX))
    written += fill(log, 20)
    log.checkpoint()
    log = reopen(log, clean=True)
    assert values(log, 17) == written[17:]
    assert log.offsets.end == 40

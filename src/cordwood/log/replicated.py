"""A follower's append: takes a leader's batches as they are."""

from typing import TYPE_CHECKING

from cordwood.log import opening
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.moment import Moment
from cordwood.records.batch import BatchHeader, batches_in, crc_is_right

if TYPE_CHECKING:
    from cordwood.log.log import Log


def check(log: "Log", batches: memoryview | bytearray) -> list[tuple[int, BatchHeader]]:
    """Position and header of every batch. Raises CORRUPT_MESSAGE unless all are whole, sound and behind the log's end.

    A leader's compacted log has gaps, so offsets must rise but need not be contiguous.
    """
    if not log.ready:
        opening.make_ready(log)
    found = list(batches_in(batches))
    if not found or found[-1][0] + found[-1][1].size != len(batches):
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, "The leader's answer does not consist of whole batches.")
    expected = log.log_end_offset
    for position, header in found:
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise ProtocolError(
                ErrorCode.CORRUPT_MESSAGE,
                f"The leader sent offset {header.base_offset} where at least {expected} must come.",
            )
        if not crc_is_right(batches, position, header.size):
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"The batch at offset {header.base_offset} is damaged.")
        expected = header.next_offset
    return found


def append(log: "Log", header: BatchHeader, batch: memoryview, now: Moment) -> None:
    """Writes one checked batch at the end of the log. No batch is refused: the leader has it."""
    gap = header.base_offset != log.log_end_offset
    log.write(
        batch,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.partition_leader_epoch,
        now.wall_ms,
    )
    assert log.active is not None
    if gap:
        # Recent places hold only contiguous offsets.
        log.active.forget_recent()
    if header.producer_id >= 0:
        aborted = log.producers.replay(header, batch, now.boot_ms)
        if aborted is not None:
            log.active.load_transactions().append(aborted)

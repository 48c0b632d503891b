"""Checks a leader's batches, which a follower takes as they are."""

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.records.batch import BatchHeader, Buffer, batches_in, crc_is_right


def check_batches(batches: Buffer, log_end_offset: int, latest_epoch: int) -> list[tuple[int, BatchHeader]]:
    """Position and header of every batch. Raises CORRUPT_MESSAGE unless all are whole, sound, behind the log's end, and
    of no later epoch than their leader: a deposed leader may have cut its log while it sent the answer.

    A leader's compacted log has gaps, so offsets must rise but need not be contiguous.
    """
    found = list(batches_in(batches))
    if not found or found[-1][0] + found[-1][1].size != len(batches):
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, "The leader's answer does not consist of whole batches.")
    expected = log_end_offset
    for position, header in found:
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise ProtocolError(
                ErrorCode.CORRUPT_MESSAGE,
                f"The leader sent offset {header.base_offset} where at least {expected} must come.",
            )
        if header.partition_leader_epoch > latest_epoch:
            raise ProtocolError(
                ErrorCode.CORRUPT_MESSAGE,
                f"The leader of epoch {latest_epoch} sent a batch of epoch {header.partition_leader_epoch}.",
            )
        if not crc_is_right(batches, position, header.size):
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"The batch at offset {header.base_offset} is damaged.")
        expected = header.next_offset
    return found

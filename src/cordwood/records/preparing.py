"""What a batch may need before a log takes it: its records looked at, its codec changed. For another process.

`prepare_each` gets the batches of one request as bytes and answers with plain values.
"""

from typing import NamedTuple

from cordwood.records.batch import LOG_OVERHEAD, MAGIC, Buffer, Codec, crc_is_right, read_header
from cordwood.records.recompression import recompress
from cordwood.records.record_rules import RecordRules, Refusal, look
from cordwood.records.validate import InvalidBatch


class Task(NamedTuple):
    """One batch, and what is to be done with it."""

    batch: Buffer
    rules: RecordRules | None
    """What its records must have; None: anything."""
    codec: Codec | None
    """The codec that it is to have; None: its own."""
    level: int | None = None
    max_bytes: int = 0
    """How large it may be with that codec."""


Prepared = bytes | Refusal | None
"""The batch with its new codec, why it is refused, or None: as it was."""


def prepare_each(tasks: list[Task], left_bytes: int) -> list[Prepared]:
    """What becomes of each batch. Small ones can grow a thousandfold: together they get no larger than `left_bytes`."""
    outcome: list[Prepared] = []
    for task in tasks:
        prepared = _prepare(task, left_bytes)
        if isinstance(prepared, bytes):
            left_bytes -= len(prepared)
        outcome.append(prepared)
    return outcome


def _is_whole(batch: Buffer) -> bool:
    """Whether this is one batch with its CRC. If not, the log refuses it before it asks about records."""
    header = read_header(batch)
    size = len(batch)
    return header.magic == MAGIC and header.batch_length + LOG_OVERHEAD == size and crc_is_right(batch, 0, size)


def _prepare(task: Task, left_bytes: int) -> Prepared:
    batch, rules, codec, level, max_bytes = task
    if not _is_whole(batch):
        return None
    if rules is not None and (refusal := look(batch, rules).refusal) is not None:
        return refusal
    if codec is None:
        return None
    try:
        renewed = recompress(batch, codec, level, min(max_bytes, max(left_bytes, len(batch))))
    except InvalidBatch as error:
        return Refusal(error.code, error.message, error.record_errors)
    return None if renewed is batch else bytes(renewed)

"""Prepares batches for a log: checks their records, changes their codec. Runs in another process.

`prepare_each` gets the batches of one request as bytes and answers with plain values.
"""

from typing import NamedTuple

from cordwood.records.batch import LOG_OVERHEAD, MAGIC, Buffer, Codec, crc_is_right, read_header
from cordwood.records.recompression import recompress
from cordwood.records.record_rules import RecordRules, Refusal, look
from cordwood.records.validate import InvalidBatch


class Task(NamedTuple):
    """One batch, and how to prepare it."""

    batch: Buffer
    rules: RecordRules | None
    """The rules for its records; None: no rules."""
    codec: Codec | None
    """The codec to compress with; None: the batch's own."""
    level: int | None = None
    max_bytes: int = 0
    """The most bytes of the batch with that codec."""


Prepared = bytes | Refusal | None
"""The batch with its new codec, its refusal, or None: the batch is unchanged."""


def prepare_each(tasks: list[Task], left_bytes: int) -> list[Prepared]:
    """Prepares each batch. Small batches can grow a thousandfold: together they get at most `left_bytes`."""
    outcome: list[Prepared] = []
    for task in tasks:
        prepared = _prepare(task, left_bytes)
        if isinstance(prepared, bytes):
            left_bytes -= len(prepared)
        outcome.append(prepared)
    return outcome


def _is_whole(batch: Buffer) -> bool:
    """Whether the bytes are one batch with its CRC. If not, the log refuses them before any rule for records."""
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

"""The witness of a checkpoint of offsets or leader epochs: a copy with checksums, in a file beside it.

Kafka's format has no checksum, and one flipped bit in a checkpoint does silent harm: a log start that is too high hides
acknowledged records, and retention deletes them next; a recovery point that is too low lets a start cut acknowledged
batches behind a damaged one; a recovery point that is too high keeps torn batches; a wrong leader epoch lets replicas
diverge. So a checkpoint that its witness does not know is replaced by the copy, or made again from the log.

The witness is durable before the checkpoint is replaced. The witness has the checksums of the new and of the former
checkpoint, so a crash between the two files leaves a checkpoint that the witness knows. A checkpoint without a witness,
or with a damaged one, is believed: Kafka wrote it, or an earlier version.
"""

import zlib
from typing import NamedTuple

from cordwood.records.batch import Buffer


class Believed(NamedTuple):
    """The trusted content of a checkpoint."""

    data: bytes | None
    """The checkpoint's content, or its copy; None if there is neither."""
    problem: str = ""
    """The fault of the checkpoint itself."""


def witness_path(checkpoint_path: str) -> str:
    return f"{checkpoint_path.removesuffix('-checkpoint')}-witness"


def encode_witness(data: bytes, before: bytes | None) -> bytes:
    """The witness of a checkpoint that is about to be written. `before`: its present content, if it is sound."""
    sums = " ".join(_checksum(each) for each in (data, before) if each is not None).encode()
    return sums + f"\n{_checksum(sums + data)}\n".encode() + data


def believe(data: Buffer | None, witness: Buffer | None) -> Believed:
    """Compares a checkpoint with its witness; either is None where there is no such file."""
    content = None if data is None else bytes(data)
    head, _, rest = bytes(witness or b"").partition(b"\n")
    own, _, copy = rest.partition(b"\n")
    if own.decode("ascii", "replace") != _checksum(head + copy):
        return Believed(content)
    if content is not None and _checksum(content).encode() in head.split(b" "):
        return Believed(content)
    # Witnesses of an earlier version have checksums and no copy.
    if content is None:
        return Believed(copy, "it is missing") if copy else Believed(None)
    return Believed(copy or None, "its checksum is not in its witness")


def _checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"

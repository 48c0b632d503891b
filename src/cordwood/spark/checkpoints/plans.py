"""The plan of a batch: `offsets/<batch>`, which says where every source stands at the batch's end.

    v1
    {"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{…}}
    {"orders": {"0": 100}}

Two plans are the same batch if their sources' lines are the same: the time and the settings in the second line may
differ when a batch is planned again. To restore a plan all of it is needed, since Spark reads the watermark and the
format of its state from the second line.
"""

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_MAX_TEXT_BYTES: Final = 64 << 20
"""The most bytes of an unpacked plan: a hundred times those of a topic with a hundred thousand partitions."""
_NO_SOURCES: Final = 2
"""The lines before the first source."""
_NAME_MARK: Final = b"name"
_NAME_LENGTH: Final = struct.Struct(">H")
_MAX_NAME_BYTES: Final = 1_000


class UnreadablePlan(Exception):
    """A file of `offsets/` is missing, empty or torn; the message names the file and the fault."""


@dataclass(frozen=True)
class Plan:
    """The text of a file of `offsets/`, known to be whole."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a plan. Raises ValueError, naming the fault, for a text that Spark would not read."""
        if not text.strip("\0 \n"):
            raise ValueError(f"has {len(text)} bytes and no plan" if text else "is empty")
        lines = text.splitlines()
        if not lines[0].startswith("v") or not lines[0][1:].isdecimal():
            raise ValueError("does not begin with a version")
        if len(lines) <= _NO_SOURCES:
            raise ValueError("is torn: it names no source")
        for line in lines[1:]:
            if line != "-":  # a source without an offset yet
                try:
                    json.loads(line)
                except ValueError as error:
                    raise ValueError(f"is torn: {error}") from None
        return cls(text)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self.text.splitlines()[_NO_SOURCES:])

    @property
    def digest(self) -> bytes:
        return hashlib.sha256("\n".join(self.sources).encode()).digest()

    def packed(self, max_bytes: int) -> bytes:
        """The compressed plan; empty if it takes more than `max_bytes`."""
        packed = zlib.compress(self.text.encode(), 6)
        return packed if len(packed) <= max_bytes else b""

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Raises ValueError for bytes that are no plan."""
        unpacker = zlib.decompressobj()
        try:
            raw = unpacker.decompress(packed, _MAX_TEXT_BYTES)
        except zlib.error as error:
            raise ValueError(f"is no packed plan: {error}") from None
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise ValueError("is no packed plan: it does not end")
        return cls.parse(raw.decode())


def with_query_name(packed: bytes, name: str, max_bytes: int) -> bytes:
    """Adds the query's name to a packed or empty plan, for people who look at its family."""
    said = name.encode()
    labelled = packed + said + _NAME_LENGTH.pack(len(said)) + _NAME_MARK if len(said) <= _MAX_NAME_BYTES else packed
    return labelled if len(labelled) <= max_bytes else packed


def without_query_name(text: bytes) -> tuple[bytes, str | None]:
    """Undoes `with_query_name`: the packed plan, and the name if there is one."""
    if not text.endswith(_NAME_MARK) or len(text) < len(_NAME_MARK) + _NAME_LENGTH.size:
        return text, None
    end = len(text) - len(_NAME_MARK) - _NAME_LENGTH.size
    (length,) = _NAME_LENGTH.unpack_from(text, end)
    if length > end:
        return text, None
    packed = text[: end - length]
    try:
        if packed:
            Plan.unpack(packed)
        return packed, text[end - length : end].decode()
    except ValueError:
        return text, None  # a plan whose checksum looks like the mark


def batches_in(directory: Path) -> list[int]:
    """The numbers of the batches in `offsets` or `commits`, in order; none without the directory."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal())


def plan_path(checkpoint: Path, batch_id: int) -> Path:
    return checkpoint / "offsets" / str(batch_id)


def read_plan(checkpoint: Path, batch_id: int) -> Plan:
    """Reads the plan of a batch. Raises UnreadablePlan."""
    path = plan_path(checkpoint, batch_id)
    try:
        return Plan.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnreadablePlan(f"{path} is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadablePlan(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise UnreadablePlan(f"{path} {error}") from None

"""The text shape that Kafka's checkpoint files share: a version line, a count line, then that many lines."""

from collections.abc import Sequence

from cordwood.records.batch import Buffer
from cordwood.segments.damaged import DamagedCheckpoint

_VERSION = "0"


def encode_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode("ascii")


def decode_lines(data: Buffer, fields_per_line: int) -> list[list[str]]:
    """The fields of every line. DamagedCheckpoint if not all are there: a torn file must not look like a short one."""
    try:
        lines = bytes(data).decode("ascii").split("\n")
        version, count = lines[0], number(lines[1])
    except (UnicodeDecodeError, IndexError):
        raise DamagedCheckpoint("checkpoint: no version and count at its start") from None
    if version != _VERSION:
        raise DamagedCheckpoint(f"checkpoint: version {version!r} is unknown")
    rows = [line.split(" ") for line in lines[2:-1]]
    if lines[-1] or len(rows) != count:
        raise DamagedCheckpoint(f"checkpoint: {count} entries announced, {len(rows)} whole ones found")
    for row in rows:
        if len(row) != fields_per_line:
            raise DamagedCheckpoint(f"checkpoint: not an entry: {' '.join(row)!r}")
    return rows


def number(text: str) -> int:
    """A number of an entry; DamagedCheckpoint if the text is no number."""
    if not text.removeprefix("-").isdecimal():
        raise DamagedCheckpoint(f"checkpoint: not a number: {text!r}")
    return int(text)

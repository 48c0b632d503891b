"""The checksum of the checkpoint of log starts, in a file beside it: Kafka's format has no place for one.

One bit flipped in an offset there hides acknowledged records, and retention then deletes them. The witness has the
checksum of the checkpoint that is about to be written and of the one before it, and is durable first: so a crash
between the two files leaves a checkpoint that it knows. A directory without a witness, or with a damaged one, is one of
Kafka's or of an earlier version, and its checkpoint is believed.
"""

import zlib

from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import Filesystem

WITNESS_FILE = "log-start-offset-witness"


def write_witness(filesystem: Filesystem, directory: str, data: bytes, before: bytes | None) -> None:
    """Before the checkpoint is replaced. `before`: the content that it has now, if it can be believed."""
    sums = " ".join(_checksum(each) for each in (data, before) if each is not None)
    filesystem.replace(f"{directory}/{WITNESS_FILE}", f"{sums}\n{_checksum(sums.encode())}\n".encode())


def check_against_witness(filesystem: Filesystem, directory: str, data: bytes) -> None:
    """DamagedCheckpoint if the checkpoint has other bytes than were written."""
    try:
        lines = filesystem.read_bytes(f"{directory}/{WITNESS_FILE}").decode("ascii", "replace").split("\n")
    except FileNotFoundError:
        return
    if len(lines) != 3 or lines[1] != _checksum(lines[0].encode()):
        return
    if _checksum(data) not in lines[0].split(" "):
        raise DamagedCheckpoint(f"checkpoint: its checksum is not in {WITNESS_FILE}")


def _checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"

"""The witness: a second file beside the store with the store's last known state. It reveals a store that went back.

The witness has the store's revision, and a copy of all keys but those of partitions: topics, their ids and settings,
and the counters that must never go back. The witness is written soon after a change is durable, and replaced whole. So
the witness is never ahead of the store. A store behind its witness was restored from an older copy, or lost
acknowledged transactions.
"""

import json
import os
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from cordwood.cluster.stores.interface import KeyValue
from cordwood.cluster.stores.owner_only import OWNER_ONLY

LEFT_OUT = "partitions/"
"""Keys without a copy: there are many, and the directories show the existing partitions."""


class Witness(NamedTuple):
    revision: int
    keys: dict[str, bytes]


def witness_path(store_path: str) -> str:
    return f"{store_path}-witness"


def read_witness(store_path: str) -> Witness | None:
    """The witness; None if it is missing or damaged."""
    try:
        with open(witness_path(store_path), "rb") as file:
            checksum, _, body = file.read().partition(b"\n")
        if checksum != b"%08x" % zlib.crc32(body):
            return None
        fields = json.loads(body)
        return Witness(int(fields["revision"]), {key: text.encode("latin-1") for key, text in fields["keys"].items()})
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_witness(store_path: str, revision: int, items: Iterable[KeyValue]) -> None:
    """Replaces the witness atomically and durably. Raises OSError if that fails; then the old witness stays."""
    keys = {item.key: item.value.decode("latin-1") for item in items}
    body = json.dumps({"revision": revision, "keys": keys}, separators=(",", ":"), sort_keys=True).encode()
    path = witness_path(store_path)
    with open(f"{path}.tmp", "wb") as file:
        os.fchmod(file.fileno(), OWNER_ONLY)
        file.write(b"%08x\n" % zlib.crc32(body) + body)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.tmp", path)
    sync_directory(os.path.dirname(path) or ".")


def sync_directory(path: str) -> None:
    """Makes the names of the directory's files durable. Raises OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

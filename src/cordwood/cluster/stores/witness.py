"""The witness: a second file beside the store with the store's last known state. It reveals a store that went back.

The witness has the store's revision, and a copy of all keys but those of partitions: topics, their ids and settings,
and the counters that must never go back. The witness is written soon after a change is durable, and replaced whole. So
the witness is never ahead of the store. A store behind its witness was restored from an older copy, or lost
acknowledged transactions.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from cordwood.cluster.stores.interface import KeyValue
from cordwood.cluster.stores.owner_only import OWNER_ONLY
from cordwood.model.durable_files import replace_file
from cordwood.model.notes import decode_note, encode_note

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
            body = decode_note(file.read())
        if body is None:
            return None
        fields = json.loads(body)
        return Witness(int(fields["revision"]), {key: text.encode("latin-1") for key, text in fields["keys"].items()})
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_witness(store_path: str, revision: int, items: Iterable[KeyValue]) -> None:
    """Replaces the witness atomically and durably. Raises OSError if that fails; then the old witness stays."""
    keys = {item.key: item.value.decode("latin-1") for item in items}
    body = json.dumps({"revision": revision, "keys": keys}, separators=(",", ":"), sort_keys=True).encode()
    replace_file(witness_path(store_path), encode_note(body), mode=OWNER_ONLY)

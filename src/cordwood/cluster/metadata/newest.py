"""The newest change of the metadata that a broker knows: it reveals a store that went back and was written since.

The revision of a store that was restored from an older copy rises again with each write, and passes the revision that a
broker has seen. But its changes on the way are different ones.
"""

import zlib
from typing import NamedTuple

from cordwood.cluster.stores.interface import Compacted, KeyValue, MetadataStore


class Newest(NamedTuple):
    """A change of one key. `checksum`: that of the value; None: the key was deleted."""

    key: str
    revision: int
    checksum: int | None


def newest_of(key: str, value: bytes | None, revision: int) -> Newest:
    return Newest(key, revision, None if value is None else zlib.crc32(value))


async def is_in_history(store: MetadataStore, newest: Newest) -> bool | None:
    """True if the store made this change, which is not later than the store's revision; None: the store has forgotten
    too much of its history to know, and `known_epochs.py` decides. Raises StoreFailure."""
    try:
        after = await _item(store, newest.key, newest.revision)
        if newest.checksum is not None:
            return after is not None and newest == newest_of(newest.key, after.value, after.mod_revision)
        # A deleted key existed before.
        return after is None and await _item(store, newest.key, newest.revision - 1) is not None
    except Compacted:
        return None


async def _item(store: MetadataStore, key: str, revision: int) -> KeyValue | None:
    listing = await store.list(key, revision)
    return next((item for item in listing.items if item.key == key), None)

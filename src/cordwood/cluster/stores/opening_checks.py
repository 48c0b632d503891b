"""Refuses metadata stores that are missing, damaged, or older than their witness, before SQLite opens them.

A check changes nothing. A refused store stays as it is until an operator decides (`cordwood recover`).
"""

import os
import shlex

from cordwood.cluster.stores.integrity import read_image, verify
from cordwood.cluster.stores.wal import DamagedStore
from cordwood.cluster.stores.witness import read_witness, witness_path


def check_present(path: str) -> None:
    """Raises DamagedStore if the store's files are missing or empty. For a directory with a broker's data: a new store
    would know none of its topics. Changes nothing."""
    if not any(os.path.exists(file) and os.path.getsize(file) for file in (path, f"{path}-wal", witness_path(path))):
        raise DamagedStore(
            f"the metadata store {path} is gone, and the records of a broker are beside it. {_what_to_do(path)}"
        )


def check_store(path: str) -> None:
    """Raises DamagedStore if the store is damaged, or went back. Changes nothing."""
    try:
        state = verify(read_image(path), path)
    except DamagedStore as damage:
        raise DamagedStore(f"{damage}. {_what_to_do(path)}") from damage
    witness = read_witness(path)
    if witness is not None and (state is None or state.revision < witness.revision):
        at = "empty" if state is None else f"at revision {state.revision}"
        raise DamagedStore(
            f"the metadata store {path} went back: it is {at}, and was at {witness.revision} when {witness_path(path)} "
            f"was written. The store was put back from an older copy, or lost acknowledged changes. {_what_to_do(path)}"
        )


def _what_to_do(path: str) -> str:
    return (
        "Nothing was changed. Put back the whole data directory from a backup, or run `cordwood recover metadata "
        f"{shlex.quote(os.path.dirname(path))}`: it keeps a copy, and goes on with all that can be proven"
    )

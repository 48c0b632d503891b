"""`cluster-import`: the note in a data directory that it is being imported into a cluster, or was.

The note is durable before the cluster's store gets the first row. From then on the directory starts neither as a single
broker, whose new records and topics the cluster would not know, nor, until the import has ended, as a broker of the
cluster. The note stays for ever: a directory that was imported never starts as a single broker again.
"""

import json
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from cordwood.cluster.metadata.rows import IMPORT
from cordwood.model.errors import StorageFailure
from cordwood.model.notes import decode_note, encode_note
from cordwood.segments.filesystem import Filesystem, read_if_there

if TYPE_CHECKING:
    from cordwood.cluster.stores.interface import MetadataStore

NOTE_FILE = "cluster-import"
_VERSION = 1


class State(Enum):
    BEGUN = "begun"
    DONE = "done"


class Note(NamedTuple):
    import_id: str
    """A random id, which the cluster's store has as well."""
    cluster: str
    """The name of the cluster."""
    store: str
    """The address of the cluster's store."""
    node_id: int
    state: State = State.BEGUN


def write_note(filesystem: Filesystem, directory: str, note: Note) -> None:
    """Replaces the note durably."""
    fields = {**note._asdict(), "state": note.state.value, "version": _VERSION}
    body = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    filesystem.replace(f"{directory}/{NOTE_FILE}", encode_note(body))


def read_note(filesystem: Filesystem, directory: str) -> Note | None:
    """The note; None if no import was begun. Raises StorageFailure if the note is damaged."""
    data = read_if_there(filesystem, f"{directory}/{NOTE_FILE}")
    if data is None:
        return None
    if (body := decode_note(data)) is None:
        raise StorageFailure(
            f"{directory}/{NOTE_FILE} is damaged: the directory is being imported into a cluster, or was. Restore the "
            "file from a backup"
        )
    fields: dict[str, Any] = json.loads(body)
    if fields.pop("version") != _VERSION:
        raise StorageFailure(f"{directory}/{NOTE_FILE} was written by another version: finish the import with that one")
    return Note(**{**fields, "state": State(fields["state"])})


def refuse_alone(filesystem: Filesystem, directory: str) -> None:
    """Raises StorageFailure if the directory cannot start as a single broker."""
    note = read_note(filesystem, directory)
    if note is None:
        return
    if note.state is State.BEGUN:
        raise StorageFailure(_not_ended(note, directory))
    raise StorageFailure(
        f"{directory} was imported into cluster {note.cluster}, where its metadata is now. Start it with --cluster "
        f"{note.cluster} --store {note.store} --node-id {note.node_id}. Nothing was changed"
    )


def refuse_unfinished(filesystem: Filesystem, directory: str) -> Note | None:
    """Raises StorageFailure if the directory cannot start as a broker of a cluster yet. Returns the note of an import
    that ended."""
    note = read_note(filesystem, directory)
    if note is not None and note.state is State.BEGUN:
        raise StorageFailure(_not_ended(note, directory))
    return note


async def refuse_other_import(store: "MetadataStore", directory: str, note: Note) -> None:
    """Raises StorageFailure if the cluster came from another import: two copies of a directory were imported. Both
    clusters have the same id and the same node, and different records since. Raises StoreFailure."""
    imported = await store.get(IMPORT)
    if imported is None or imported.value != note.import_id.encode():
        raise StorageFailure(
            f"{directory} was imported into cluster {note.cluster} at {note.store}, and the metadata store is that of "
            "another cluster, whose records are others even if it came from a copy of the directory. Nothing was "
            "changed. Give the store of the directory's cluster with --store and --cluster"
        )


def _not_ended(note: Note, directory: str) -> str:
    command = f"cordwood cluster import {directory} --cluster {note.cluster} --store {note.store}"
    return (
        f"the import of {directory} into cluster {note.cluster} was begun, and has not ended. Go on with `{command}`, "
        "or give it up with the same command and --give-up. Nothing was changed"
    )

"""`meta.properties`, with Kafka's name and format: the cluster and node that own a data directory.

A broker with several directories keeps its metadata in one of them, its home, which names all of them. The others name
their home. Files of such directories have version 2: a release that knows only one directory refuses them, instead of
beginning the partitions of the other directories anew.

The home of several directories has a copy of the file, `home.properties`: if `meta.properties` is lost, a start still
knows the other directories.
"""

import json
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from cordwood.model.errors import StorageFailure
from cordwood.segments.filesystem import Filesystem, read_if_there, remove_if_there

PROPERTIES_FILE = "meta.properties"
WITNESS_FILE = "cluster-witness"
"""Beside `meta.properties`: how far the broker has seen the metadata of its cluster."""
EPOCHS_FILE = "cluster-epochs"
COPY_FILE = "home.properties"
"""The copy of `meta.properties` in the home of several directories."""

_ALONE = "1"
_OF_SEVERAL = "2"
_IF_DAMAGED = (
    f"If {PROPERTIES_FILE} is damaged, move it away: a start writes it anew from the metadata. A broker alone loses no "
    "records by that; if it has several data directories, give all of them. In a cluster the directory then counts as "
    "an emptied disk: its replicas are filled from others, and a partition without others waits for `cordwood cluster "
    "accept-loss`"
)
_NONE: Mapping[str, str] = MappingProxyType({})


class Identity(NamedTuple):
    """The owner of a data directory."""

    cluster_id: str
    node_id: int
    storage_id: str = ""
    """A random id of the broker's data: a replaced or emptied disk has another one. Empty in files of old releases, and
    in directories that are not the home."""
    directory_id: str = ""
    """A random id of this directory. Empty if the broker never had several."""
    home_id: str = ""
    """The id of the directory with the broker's metadata; empty if that is this one."""
    home_path: str = ""
    """The last path of that directory; empty if it is unknown, or if that is this one."""
    directories: Mapping[str, str] = _NONE
    """In the home of several directories: the last path of each, by id."""


def read_identity(filesystem: Filesystem, directory: str) -> Identity | None:
    """The owner of the data; None if there is none yet. Raises StorageFailure if the file is damaged."""
    try:
        return _decode(filesystem.read_bytes(f"{directory}/{PROPERTIES_FILE}"))
    except FileNotFoundError:
        return None


def read_owner(filesystem: Filesystem, directory: str) -> Identity | None:
    """The owner of the data; None if there is none yet. A home that lost its properties takes it from their copy.
    Raises StorageFailure if the file is damaged."""
    return read_identity(filesystem, directory) or _read_copy(filesystem, directory)


def _read_copy(filesystem: Filesystem, directory: str) -> Identity | None:
    """The copy of the identity in a home of several directories; None if there is none, or if it is damaged."""
    try:
        return _decode(filesystem.read_bytes(f"{directory}/{COPY_FILE}"))
    except (FileNotFoundError, StorageFailure):
        return None


def write_identity(filesystem: Filesystem, directory: str, identity: Identity) -> None:
    """Replaces the identity of a directory, durably, and its copy."""
    filesystem.replace(f"{directory}/{PROPERTIES_FILE}", _encode(identity))
    keep_copy(filesystem, directory, identity)


def keep_copy(filesystem: Filesystem, directory: str, identity: Identity) -> None:
    """Makes the copy of the identity, durably, if the directory is the home of several; else removes it."""
    path = f"{directory}/{COPY_FILE}"
    if not identity.directories:
        remove_if_there(filesystem, path)
    elif read_if_there(filesystem, path) != (data := _encode(identity)):
        filesystem.replace(path, data)


def claim_directory(filesystem: Filesystem, directory: str, identity: Identity) -> None:
    """Writes the identity into a directory without one, and the storage id into one without that. An existing storage
    id stays. Raises StorageFailure if another node owns the directory."""
    found = read_identity(filesystem, directory)
    if found is None or (found == identity._replace(storage_id="") and identity.storage_id):
        write_identity(filesystem, directory, identity)
    else:
        check_owner(directory, found, identity)
        # A crash may have come after several directories had become one, and before their copy was removed.
        keep_copy(filesystem, directory, found)


def check_owner(directory: str, found: Identity | None, identity: Identity) -> None:
    """Raises StorageFailure if another node owns the directory."""
    if found is not None and found[:2] != identity[:2]:
        raise StorageFailure(
            f"{directory} has the data of node {found.node_id} in cluster {found.cluster_id}, not of node "
            f"{identity.node_id} in cluster {identity.cluster_id}: node.id was changed, or the metadata store "
            f"is another broker's. {_IF_DAMAGED}"
        )


def writing_command(directory: str, identity: Identity) -> str:
    """The shell command that writes the identity of a directory."""
    lines = " ".join(shlex.quote(line) for line in _encode(identity).decode("utf-8").splitlines())
    return f"printf '%s\\n' {lines} > {shlex.quote(f'{directory}/{PROPERTIES_FILE}')}"


def _encode(identity: Identity) -> bytes:
    version = _OF_SEVERAL if identity.directories or identity.home_id else _ALONE
    lines = {"version": version, "cluster.id": identity.cluster_id, "node.id": str(identity.node_id)}
    for name, text in (
        ("storage.id", identity.storage_id),
        ("directory.id", identity.directory_id),
        ("home.directory.id", identity.home_id),
        ("home.directory.path", identity.home_path),
        ("directories", json.dumps(dict(identity.directories), sort_keys=True) if identity.directories else ""),
    ):
        if text:
            lines[name] = text
    return "".join(f"{key}={value}\n" for key, value in lines.items()).encode("utf-8")


def _decode(data: bytes) -> Identity:
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    fields = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    try:
        if fields["version"] not in (_ALONE, _OF_SEVERAL):
            raise StorageFailure(f"{PROPERTIES_FILE} has version {fields['version']}, which is unknown")
        directories = json.loads(fields.get("directories", "{}"))
        if not isinstance(directories, dict):
            raise ValueError(f"directories={fields['directories']}")
        return Identity(
            fields["cluster.id"],
            int(fields["node.id"]),
            fields.get("storage.id", ""),
            fields.get("directory.id", ""),
            fields.get("home.directory.id", ""),
            fields.get("home.directory.path", ""),
            {str(directory_id): str(path) for directory_id, path in directories.items()},
        )
    except (KeyError, ValueError) as error:
        raise StorageFailure(f"{PROPERTIES_FILE} is damaged: {error!r}. {_IF_DAMAGED}") from None

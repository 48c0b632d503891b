"""`meta.properties`, with Kafka's name and format: the cluster and node that own a data directory."""

from typing import NamedTuple

from cordwood.model.errors import StorageFailure
from cordwood.segments.filesystem import Filesystem

PROPERTIES_FILE = "meta.properties"

_VERSION = "1"
_IF_DAMAGED = (
    f"If {PROPERTIES_FILE} is damaged, move it away: a start writes it anew from the metadata. A broker alone loses no "
    "records by that. In a cluster the directory then counts as an emptied disk: its replicas are filled from others, "
    "and a partition without others waits for `cordwood cluster accept-loss`"
)


class Identity(NamedTuple):
    """The owner of a data directory."""

    cluster_id: str
    node_id: int
    storage_id: str = ""
    """A random id of the directory itself: a replaced or emptied disk has another one. Empty in files of old
    releases."""


def read_identity(filesystem: Filesystem, directory: str) -> Identity | None:
    """The owner of the data; None if there is none yet. Raises StorageFailure if the file is damaged."""
    try:
        return _decode(filesystem.read_bytes(f"{directory}/{PROPERTIES_FILE}"))
    except FileNotFoundError:
        return None


def claim_directory(filesystem: Filesystem, directory: str, identity: Identity) -> None:
    """Writes the identity into a directory without one, and the storage id into one without that. A storage id that is
    there stays. Raises StorageFailure if another node owns the directory."""
    found = read_identity(filesystem, directory)
    if found is None or (found == identity._replace(storage_id="") and identity.storage_id):
        filesystem.replace(f"{directory}/{PROPERTIES_FILE}", _encode(identity))
    elif found[:2] != identity[:2]:
        raise StorageFailure(
            f"{directory} has the data of node {found.node_id} in cluster {found.cluster_id}, not of node "
            f"{identity.node_id} in cluster {identity.cluster_id}: node.id was changed, or the metadata store "
            f"is another broker's. {_IF_DAMAGED}"
        )


def _encode(identity: Identity) -> bytes:
    lines = {"version": _VERSION, "cluster.id": identity.cluster_id, "node.id": str(identity.node_id)}
    if identity.storage_id:
        lines["storage.id"] = identity.storage_id
    return "".join(f"{key}={value}\n" for key, value in lines.items()).encode("utf-8")


def _decode(data: bytes) -> Identity:
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    fields = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    try:
        if fields["version"] != _VERSION:
            raise StorageFailure(f"{PROPERTIES_FILE} has version {fields['version']}, which is unknown")
        return Identity(fields["cluster.id"], int(fields["node.id"]), fields.get("storage.id", ""))
    except (KeyError, ValueError) as error:
        raise StorageFailure(f"{PROPERTIES_FILE} is damaged: {error!r}. {_IF_DAMAGED}") from None

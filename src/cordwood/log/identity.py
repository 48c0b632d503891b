"""`meta.properties`: which node of which cluster a data directory belongs to. Kafka's name and format."""

from typing import NamedTuple

from cordwood.model.errors import StorageFailure
from cordwood.segments.filesystem import Filesystem

PROPERTIES_FILE = "meta.properties"

_VERSION = "1"
_IF_DAMAGED = (
    f"If {PROPERTIES_FILE} is damaged, move it away: a start writes it anew from the metadata, and loses no records"
)


class Identity(NamedTuple):
    """Whose data a directory has."""

    cluster_id: str
    node_id: int


def read_identity(filesystem: Filesystem, directory: str) -> Identity | None:
    """Whose data this is; None if nobody's yet. StorageFailure if the file is damaged."""
    try:
        return _decode(filesystem.read_bytes(f"{directory}/{PROPERTIES_FILE}"))
    except FileNotFoundError:
        return None


def claim_directory(filesystem: Filesystem, directory: str, identity: Identity) -> None:
    """Writes the identity into a directory that has none. StorageFailure if the directory is somebody else's."""
    found = read_identity(filesystem, directory)
    if found is None:
        filesystem.replace(f"{directory}/{PROPERTIES_FILE}", _encode(identity))
    elif found != identity:
        raise StorageFailure(
            f"{directory} has the data of node {found.node_id} in cluster {found.cluster_id}, not of node "
            f"{identity.node_id} in cluster {identity.cluster_id}: node.id was changed, or the metadata store "
            f"is another broker's. {_IF_DAMAGED}"
        )


def _encode(identity: Identity) -> bytes:
    lines = {"version": _VERSION, "cluster.id": identity.cluster_id, "node.id": str(identity.node_id)}
    return "".join(f"{key}={value}\n" for key, value in lines.items()).encode("utf-8")


def _decode(data: bytes) -> Identity:
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    fields = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    try:
        if fields["version"] != _VERSION:
            raise StorageFailure(f"{PROPERTIES_FILE} has version {fields['version']}, which is unknown")
        return Identity(fields["cluster.id"], int(fields["node.id"]))
    except (KeyError, ValueError) as error:
        raise StorageFailure(f"{PROPERTIES_FILE} is damaged: {error!r}. {_IF_DAMAGED}") from None

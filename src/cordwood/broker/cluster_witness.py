"""`cluster-witness`: how far a broker has seen the metadata of its cluster. It reveals a store that went back.

The store of a cluster lies elsewhere and can be restored from an older copy while this broker is down: partitions would
be led by brokers that lack acknowledged records. So a broker keeps the cluster's id, the highest revision that it has
seen, and the newest change. It refuses to start on an earlier revision, and on a store without that change. The file is
replaced whole, at most once in a while and in a thread: it is never ahead of the store, and a little behind it.

The file also has the boot id of the machine: a broker that finds another one, and no mark of a clean stop, may have
lost what was acknowledged from memory. The new boot id is written once the controller has taken note of that: a broker
that stops before says so again at its next start.
"""

import asyncio
import json
import logging
import os
import zlib
from typing import NamedTuple

from cordwood.broker.storage import WITNESS_FILE
from cordwood.cluster.newest import Newest, is_in_history
from cordwood.cluster.rows import CLUSTER_ID
from cordwood.cluster.stores.interface import MetadataStore, StoreFailure
from cordwood.log.directory.identity import PROPERTIES_FILE
from cordwood.model.errors import StorageFailure

logger = logging.getLogger("cordwood.broker")

_WRITE_AFTER_S = 1.0
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LOSS_NOT_NOTED = "loss not noted"
"""In place of the boot id: records may be lost, and the controller does not know yet."""


class Seen(NamedTuple):
    """The content of the file."""

    cluster_id: str
    revision: int
    boot_id: str
    newest: Newest | None = None
    """The newest change up to this revision, if it is known."""


def boot_id() -> str:
    """The id of this run of the machine's kernel; empty if the system has none."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def may_have_lost(seen: Seen | None, *, stopped_cleanly: bool) -> bool:
    """Whether records that were acknowledged from memory may be lost since the controller last took note."""
    if seen is None:
        return False
    return seen.boot_id == _LOSS_NOT_NOTED or (seen.boot_id != boot_id() and not stopped_cleanly)


def read_seen(directory: str) -> Seen | None:
    """What the broker had seen; None without the file. Raises StorageFailure if the file is damaged."""
    path = f"{directory}/{WITNESS_FILE}"
    try:
        with open(path, "rb") as file:
            checksum, _, body = file.read(65536).partition(b"\n")
        if checksum == b"%08x" % zlib.crc32(body):
            fields = json.loads(body)
            newest = fields.get("newest")
            return Seen(
                str(fields["cluster_id"]),
                int(fields["revision"]),
                str(fields["boot_id"]),
                None if newest is None else Newest(*newest),
            )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        pass
    raise StorageFailure(
        f"{path} is damaged. If the metadata store of the cluster was not restored from an older copy, move the file "
        "away: the next start writes it anew"
    )


def write_seen(directory: str, seen: Seen) -> None:
    """Replaces the file atomically and durably. Raises OSError."""
    body = json.dumps(seen._asdict(), separators=(",", ":"), sort_keys=True).encode()
    path = f"{directory}/{WITNESS_FILE}"
    with open(f"{path}.tmp", "wb") as file:
        file.write(b"%08x\n" % zlib.crc32(body) + body)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.tmp", path)


async def check_cluster(store: MetadataStore, directory: str, cluster_id: str | None, seen: Seen | None) -> None:
    """Refuses a store that is another cluster's, or went back. `cluster_id` is that of the directory's owner; None: the
    directory is new. Changes nothing. Raises StoreFailure."""
    listing = await store.list(CLUSTER_ID)
    stored = next((item.value.decode() for item in listing.items if item.key == CLUSTER_ID), None)
    known = cluster_id if cluster_id is not None else None if seen is None else seen.cluster_id
    if known is not None and stored is not None and stored != known:
        raise StoreFailure(
            f"{directory} has the data of cluster {known}, and the metadata store is that of cluster {stored}. Nothing "
            "was changed. Give the store of the directory's cluster with --store and --cluster, or another --data-dir; "
            f"{PROPERTIES_FILE} in the directory says whose it is"
        )
    revision = 0 if stored is None else listing.revision
    went_back = (seen is not None and revision < seen.revision) or (known is not None and stored is None)
    if not went_back and seen is not None and seen.newest is not None:
        went_back = not await is_in_history(store, seen.newest)
    if went_back:
        at = "empty" if stored is None else f"at revision {revision}"
        was = "had metadata" if seen is None else f"was at revision {seen.revision}"
        if seen is not None and revision >= seen.revision:
            was += ", with another history,"
        raise StoreFailure(
            f"the metadata store of cluster {known} went back: it is {at}, and {was} when this broker last saw it. The "
            "store was restored from an older copy, or is a new one. Nothing was changed. Put back a copy of the store "
            "that is at least as new. To go on with the older metadata, and lose what it does not know, move "
            f"{directory}/{WITNESS_FILE} away on every broker"
        )


class ClusterWitness:
    """Keeps the file up with the image, on an event loop. `begin` writes the first version at once."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._seen: Seen | None = None
        self._written = 0
        self._writing: asyncio.Task[None] | None = None

    def begin(self, cluster_id: str, revision: int, newest: Newest | None, *, unclean: bool) -> None:
        """`unclean`: the controller has to take note that records may be lost. Raises OSError."""
        self._seen = Seen(cluster_id, revision, _LOSS_NOT_NOTED if unclean else boot_id(), newest)
        write_seen(self._directory, self._seen)
        self._written = revision

    def loss_noted(self) -> None:
        """The controller has taken note that records may be lost. The file is written with the next revision."""
        if self._seen is not None:
            self._seen = self._seen._replace(boot_id=boot_id())

    def saw(self, revision: int, newest: Newest | None) -> None:
        """The image is at this revision. The file is written soon, in a thread."""
        if self._seen is None or revision <= self._seen.revision:
            return
        self._seen = self._seen._replace(revision=revision, newest=newest)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_soon(), name="write the cluster's witness")

    async def _write_soon(self) -> None:
        while self._seen is not None and self._written < self._seen.revision:
            await asyncio.sleep(_WRITE_AFTER_S)
            await asyncio.to_thread(self._write, self._seen)
        self._writing = None

    def _write(self, seen: Seen) -> None:
        try:
            write_seen(self._directory, seen)
        except OSError as failure:
            logger.warning("%s/%s cannot be written: %s", self._directory, WITNESS_FILE, failure)
        self._written = seen.revision

    async def close(self) -> None:
        """Writes what is not written yet."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
        if self._seen is not None and self._written < self._seen.revision:
            await asyncio.to_thread(self._write, self._seen)
        self._seen = None

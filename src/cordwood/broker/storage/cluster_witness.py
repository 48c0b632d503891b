"""`cluster-witness` and `cluster-epochs`: the state of its cluster's metadata that a broker has seen. Both files reveal
a store that went back.

The store of a cluster lies elsewhere and can be restored from an older copy while this broker is down: partitions would
be led by brokers that lack acknowledged records. So a broker keeps the cluster's id, the highest revision that it has
seen, and the newest change. The broker refuses to start on an earlier revision, and on a store without that change. A
store that has compacted its history cannot tell whether it made the change: then the broker compares the epochs of
partitions and brokers, which it keeps beside the witness. The files are replaced whole, at most once in a while and in
a thread: they are never ahead of the store, and a little behind it.

The witness also has the boot id of the machine: a broker that finds another one, and no mark of a clean stop, may have
lost records that were acknowledged from memory. The new boot id is written once the controller has taken note of that:
a broker that stops earlier reports the loss again at its next start.

The witness also has the broker epoch, which is written before the broker registers in it. A broker that stops cleanly
raises the epoch once more, in the witness and then in the store. A directory that knows only an earlier epoch than the
store, under the same storage id, is an older copy: it lacks records that the broker has acknowledged.
"""

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from cordwood.cluster.metadata.known_epochs import KnownEpochs, behind, decode_known_epochs, encode_known_epochs
from cordwood.cluster.metadata.newest import Newest, is_in_history
from cordwood.cluster.metadata.rows import CLUSTER_ID, broker_epoch_key, storage_key
from cordwood.cluster.stores.interface import MetadataStore, StoreFailure
from cordwood.log.directory.identity import EPOCHS_FILE, PROPERTIES_FILE, WITNESS_FILE
from cordwood.model.durable_files import replace_file, sync
from cordwood.model.errors import StorageFailure
from cordwood.model.notes import decode_note, encode_note

logger = logging.getLogger("cordwood.broker")

_WRITE_AFTER_S = 1.0
_MOST_BYTES = 64 * 2**20
"""More than any of the files has: a million partitions take about 3 MB."""
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LOSS_NOT_NOTED = "loss not noted"
"""A mark in place of the boot id: records may be lost, and the controller does not know yet."""

Content = TypeVar("Content")


class Seen(NamedTuple):
    """The content of the witness."""

    cluster_id: str
    revision: int
    boot_id: str
    newest: Newest | None = None
    """The newest change up to this revision, if it is known."""
    broker_epoch: int = 0
    """The highest epoch in which the broker may have registered with this directory; 0: unknown."""


def boot_id() -> str:
    """The id of this run of the machine's kernel; empty if the system has none."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def may_have_lost(seen: Seen | None, *, stopped_cleanly: bool) -> bool:
    """True if records that were acknowledged from memory may be lost since the controller last took note."""
    if seen is None:
        return False
    return seen.boot_id == _LOSS_NOT_NOTED or (seen.boot_id != boot_id() and not stopped_cleanly)


def read_seen(directory: str) -> Seen | None:
    """The state that the broker had seen; None without the file. Raises StorageFailure if the file is damaged."""
    return _read(f"{directory}/{WITNESS_FILE}", _decode_seen)


def read_epochs(directory: str) -> KnownEpochs | None:
    """The epochs that the broker had seen; None without the file. Raises StorageFailure if the file is damaged."""
    return _read(f"{directory}/{EPOCHS_FILE}", decode_known_epochs)


def _decode_seen(body: bytes) -> Seen:
    fields = json.loads(body)
    newest = fields.get("newest")
    return Seen(
        str(fields["cluster_id"]),
        int(fields["revision"]),
        str(fields["boot_id"]),
        None if newest is None else Newest(*newest),
        int(fields.get("broker_epoch", 0)),
    )


def _read(path: str, decode: Callable[[bytes], Content]) -> Content | None:
    try:
        with open(path, "rb") as file:
            body = decode_note(file.read(_MOST_BYTES))
        if body is not None:
            return decode(body)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise StorageFailure(
        f"{path} is damaged. If the metadata store of the cluster was not restored from an older copy, move the file "
        "away: the next start writes it anew"
    )


def write_seen(directory: str, seen: Seen) -> None:
    """Replaces the witness atomically and durably. Raises OSError."""
    body = json.dumps(seen._asdict(), separators=(",", ":"), sort_keys=True).encode()
    replace_file(f"{directory}/{WITNESS_FILE}", encode_note(body))


def write_epochs(directory: str, known: KnownEpochs) -> None:
    """Replaces the file of epochs atomically and durably. Raises OSError."""
    replace_file(f"{directory}/{EPOCHS_FILE}", encode_note(encode_known_epochs(known)))


async def check_cluster(
    store: MetadataStore,
    directory: str,
    cluster_id: str | None,
    seen: Seen | None,
    epochs: KnownEpochs | None = None,
) -> None:
    """Refuses a store that is another cluster's, or went back. `cluster_id`: the cluster of the directory's owner;
    None: the directory is new. `epochs` is None if an earlier release kept none. Changes nothing. Raises
    StoreFailure."""
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
    what = None
    if not went_back and seen is not None:
        made = None if seen.newest is None else await is_in_history(store, seen.newest)
        if made is None and epochs is not None:
            what = behind(epochs, (await store.list("")).items)
        went_back = made is False or what is not None
    if went_back:
        at = "empty" if stored is None else f"at revision {revision}"
        was = "had metadata" if seen is None else f"was at revision {seen.revision}"
        if what is not None:
            was += f" ({what})"
        elif seen is not None and revision >= seen.revision:
            was += ", with another history,"
        away = f"{directory}/{WITNESS_FILE}"
        go_on = f"To go on with the older metadata, and lose what it does not know, move {away} away on every broker"
        if stored is None:
            go_on = "If there is none, make a cluster of the brokers' directories (docs/operations/lost-etcd.md)"
        raise StoreFailure(
            f"the metadata store of cluster {known} went back: it is {at}, and {was} when this broker last saw it. The "
            "store was restored from an older copy, or is a new one. Nothing was changed. Put back a copy of the store "
            f"that is at least as new. {go_on}"
        )


async def is_older_copy(store: MetadataStore, broker_id: int, storage_id: str, seen: Seen) -> bool:
    """True if the broker has registered with this storage since the directory was copied. Raises StoreFailure."""
    if not seen.broker_epoch:
        return False
    stored, epoch = await store.get(storage_key(broker_id)), await store.get(broker_epoch_key(broker_id))
    if stored is None or epoch is None or stored.value.decode() != storage_id:
        return False
    return int(epoch.value) > seen.broker_epoch


class ClusterWitness:
    """Keeps the files up to date with the image, on an event loop. `begin` writes the first versions at once."""

    def __init__(self, directory: str, epochs: Callable[[], KnownEpochs]) -> None:
        """`epochs` returns the epochs in the present image."""
        self._directory = directory
        self._epochs = epochs
        self._epochs_written = True
        self._seen: Seen | None = None
        self._broker_epoch = 0
        """The highest epoch that was noted. Kept apart: the loop replaces the seen state while a thread notes."""
        self._written = 0
        self._writing: asyncio.Task[None] | None = None
        self._one_at_a_time = threading.Lock()
        """Held while a file is written: an earlier content must not replace a later one."""

    def begin(
        self, cluster_id: str, revision: int, newest: Newest | None, *, unclean: bool, broker_epoch: int = 0
    ) -> None:
        """Writes the first versions. `unclean`: the controller has to note that records may be lost. Raises OSError."""
        self._broker_epoch = max(self._broker_epoch, broker_epoch)
        boot = _LOSS_NOT_NOTED if unclean else boot_id()
        self._seen = Seen(cluster_id, revision, boot, newest, self._broker_epoch)
        # The epochs are written first: without a witness they are not believed.
        write_epochs(self._directory, self._epochs())
        write_seen(self._directory, self._seen)
        self._written = revision

    def note_epoch(self, broker_epoch: int, *, registers: bool) -> bool:
        """Notes that the broker's epoch in the store is about to be this one. True if the witness has it, durably.

        A broker that `registers` goes on without a note on a disk without space, when there is no witness: the next
        start would take a directory whose witness has an earlier epoch for an older copy. Raises StorageFailure if the
        witness can neither be written nor removed; then the witness stays as it was, and the broker must not register.
        """
        with self._one_at_a_time:
            known = self._seen or read_seen(self._directory)
            if known is None:
                return False
            if max(known.broker_epoch, self._broker_epoch) >= broker_epoch:
                return True
            try:
                write_seen(self._directory, known._replace(broker_epoch=broker_epoch))
            except OSError as failure:
                if not registers:
                    logger.warning("%s/%s cannot be written: %s", self._directory, WITNESS_FILE, failure)
                    return False
                self._remove(failure)
                self._broker_epoch = broker_epoch
                return False
            self._broker_epoch = broker_epoch
            return True

    def _remove(self, failure: OSError) -> None:
        """Removes a witness that cannot be written. Raises StorageFailure if it stays."""
        path = f"{self._directory}/{WITNESS_FILE}"
        try:
            with suppress(FileNotFoundError):
                os.unlink(path)
            sync(self._directory)
        except OSError as stays:
            raise StorageFailure(
                f"the broker does not register: {path} can neither be written ({failure}) nor removed ({stays}), and "
                "with an earlier epoch in it the next start would take this directory for an older copy. Make the disk "
                "writable, and start the broker again"
            ) from failure
        logger.warning("%s cannot be written, and is removed: %s", path, failure)

    def loss_noted(self) -> None:
        """Notes that the controller knows of the possible loss. The file is written with the next revision."""
        if self._seen is not None:
            self._seen = self._seen._replace(boot_id=boot_id())

    def saw(self, revision: int, newest: Newest | None, *, epochs_changed: bool) -> None:
        """Notes that the image is at this revision. The files are written soon, in a thread."""
        if self._seen is None or revision <= self._seen.revision:
            return
        self._epochs_written &= not epochs_changed
        self._seen = self._seen._replace(revision=revision, newest=newest)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_soon(), name="write the cluster's witness")

    async def _write_soon(self) -> None:
        while self._seen is not None and self._written < self._seen.revision:
            await asyncio.sleep(_WRITE_AFTER_S)
            await asyncio.to_thread(self._write, self._changed_epochs())
        self._writing = None

    def _changed_epochs(self) -> KnownEpochs | None:
        """The epochs, unless their file has them."""
        written, self._epochs_written = self._epochs_written, True
        return None if written else self._epochs()

    def _write(self, epochs: KnownEpochs | None) -> None:
        with self._one_at_a_time:
            seen = self._seen
            assert seen is not None
            try:
                if epochs is not None:
                    write_epochs(self._directory, epochs)
                write_seen(self._directory, seen._replace(broker_epoch=max(seen.broker_epoch, self._broker_epoch)))
            except OSError as failure:
                logger.warning("%s/%s cannot be written: %s", self._directory, WITNESS_FILE, failure)
                self._epochs_written = self._epochs_written and epochs is None
            self._written = seen.revision

    async def close(self) -> None:
        """Writes the changes that are not written yet."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
        if self._seen is not None and self._written < self._seen.revision:
            await asyncio.to_thread(self._write, self._changed_epochs())
        self._seen = None

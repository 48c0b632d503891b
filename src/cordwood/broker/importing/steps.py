"""The steps of an import. Each step has a check that it is done: an import that was killed goes on.

Until the cluster has its id (the step `commit`) the import can be given up. Afterwards the directory is the cluster's.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from cordwood.broker.storage.cluster_witness import Seen, boot_id, read_seen, write_seen
from cordwood.broker.storage.import_note import NOTE_FILE, Note, State, read_note, write_note
from cordwood.broker.storage.storage import METADATA_FILE
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.newest import newest_of
from cordwood.cluster.metadata.rows import CLUSTER_ID, IMPORT, TOPIC_NAMES
from cordwood.cluster.planner.importing import (
    CannotImport,
    check_alone,
    imported_rows,
    plan_commit,
    plan_giving_up,
    plan_reservation,
    plan_rows,
)
from cordwood.cluster.stores.interface import Listing, MetadataStore, OutcomeUnknown, StoreFailure
from cordwood.cluster.stores.opening_checks import check_present
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.identity import Identity
from cordwood.model.errors import StorageFailure
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.segments.filesystem import remove_if_there

IMPORTED = "imported-"
"""The beginning of the names that the files of the old metadata store get."""
_KEPT_FILES = (METADATA_FILE, f"{METADATA_FILE}-wal", f"{METADATA_FILE}-witness")
_DROPPED_FILES = (f"{METADATA_FILE}-shm", f"{METADATA_FILE}-reserve")
_ATTEMPTS = 20


class Step(NamedTuple):
    name: str
    meaning: str
    done: Callable[[], Awaitable[bool]]
    run: Callable[[], Awaitable[None]]


class Source(NamedTuple):
    """The metadata of the directory."""

    listing: Listing
    image: ClusterImage


async def read_source(logs: DataDirectory, settings: BrokerSettings) -> Source:
    """Reads the metadata store of a directory whose lock the caller holds. Raises StoreFailure."""
    from cordwood.cluster.stores.sqlite import SqliteStore

    path = f"{logs.path}/{METADATA_FILE}"
    check_present(path)
    store = await SqliteStore.open(path)
    try:
        listing = await store.list("")
    finally:
        await store.close()
    image = ClusterImage(settings.node_id, settings)
    image.load(listing)
    return Source(listing, image)


class Import:
    """One import. The caller holds the lock of the directory, which a broker alone has closed cleanly."""

    def __init__(
        self,
        logs: DataDirectory,
        owner: Identity,
        store: MetadataStore,
        settings: BrokerSettings,
        note: Note,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`note`: the directory's own, or a new one that the first step writes."""
        self._logs = logs
        self._filesystem = logs.filesystem
        self._owner = owner
        self._store = store
        self._settings = settings
        self._note = note
        self._progress = progress
        self._source: Source | None = None
        self.steps = (
            Step("note", f"{NOTE_FILE} says that the import is under way", self._is_noted, self._begin),
            Step("reserve", "the cluster is reserved", self._is_reserved, self._reserve),
            Step("rows", "the cluster's store has the metadata", self._has_rows, self._write_rows),
            Step("commit", "the cluster has the id of the directory", self._is_committed, self._commit),
            Step("witness", "the directory knows the cluster's metadata", self._has_witness, self._write_witness),
            Step("store", "the old metadata is out of use", self._is_out_of_use, self._move_store),
            Step("done", f"{NOTE_FILE} says that the import has ended", self._is_done, self._finish),
        )

    async def run(self, after: Callable[[str], None] = lambda step: None) -> None:
        """Does the steps that are not done yet. `after` is called with each step. Raises StoreFailure, StorageFailure,
        CannotImport; the import can then be run again."""
        for step in self.steps:
            await self._do(step)
            after(step.name)

    async def _do(self, step: Step) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                if await step.done():
                    return
                await step.run()
            except OutcomeUnknown:
                # Every transaction of an import can be repeated: its outcome is looked up first.
                if attempt == _ATTEMPTS - 1:
                    raise
        if not await step.done():
            raise StoreFailure(f"the step `{step.name}` of the import does not come to its end: give the command again")

    async def check(self, *, moves_first: bool = False) -> Source:
        """Refuses an import that could not succeed. Changes nothing. `moves_first`: workers have partitions, which are
        taken back before the import. Raises CannotImport, StoreFailure."""
        await self._is_reserved()
        source = await self._read()
        if not moves_first:
            check_alone(source.image, self._owner.node_id)
        return source

    async def _read(self) -> Source:
        if self._source is None:
            self._source = await read_source(self._logs, self._settings)
        if self._source.image.cluster_id != self._owner.cluster_id:
            raise CannotImport(
                f"the metadata in {self._logs.path} is that of cluster {self._source.image.cluster_id}, and the "
                f"directory belongs to cluster {self._owner.cluster_id}"
            )
        return self._source

    # The steps

    async def _is_noted(self) -> bool:
        return read_note(self._filesystem, self._logs.path) is not None

    async def _begin(self) -> None:
        await self.check()
        write_note(self._filesystem, self._logs.path, self._note)

    async def _is_reserved(self) -> bool:
        """Raises CannotImport if the cluster is not empty."""
        items = (await self._store.list("")).items
        found = {item.key: item.value for item in items}
        reserved_by = found.get(IMPORT)
        if reserved_by == self._note.import_id.encode():
            return True
        where = f"cluster {self._note.cluster} at {self._note.store}"
        if CLUSTER_ID in found:
            topics = sum(key.startswith(TOPIC_NAMES) for key in found)
            raise CannotImport(
                f"{where} is not empty: it has the id {found[CLUSTER_ID].decode()} and {topics} topics. A directory is "
                "imported into an empty cluster, before its first broker starts: give another --cluster name"
            )
        if reserved_by is not None:
            raise CannotImport(
                f"another directory is being imported into {where}: end or give up that import, or give another "
                "--cluster name"
            )
        if found:
            raise CannotImport(f"{where} is not empty: it has {len(found)} keys, and no cluster id. Give another name")
        return False

    async def _reserve(self) -> None:
        await self._store.txn(*plan_reservation(self._note.import_id))

    async def _has_rows(self) -> bool:
        if await self._is_committed():
            return True
        rows = await self._rows()
        found = {item.key: item.value for item in (await self._store.list("")).items if item.key != IMPORT}
        if unknown := sorted(found.keys() - rows.keys()):
            raise CannotImport(f"the cluster got keys that the directory does not have: {', '.join(unknown[:5])}")
        return found == rows

    async def _rows(self) -> dict[str, bytes]:
        source = await self._read()
        check_alone(source.image, self._owner.node_id)
        assert self._owner.storage_id, "a start gives every directory a storage id"
        return imported_rows(source.listing.items, self._owner.node_id, self._owner.storage_id)

    async def _write_rows(self) -> None:
        plan = plan_rows(await self._rows(), self._note.import_id)
        for number, transaction in enumerate(plan, 1):
            if not (await self._store.txn(*transaction)).succeeded:
                return
            self._progress(f"{number} of {len(plan)} transactions written")

    async def _is_committed(self) -> bool:
        items = {item.key: item.value for item in (await self._store.list(IMPORT)).items}
        named = await self._store.get(CLUSTER_ID)
        return items.get(IMPORT) == self._note.import_id.encode() and named is not None

    async def _commit(self) -> None:
        if not await self._has_rows():
            raise StoreFailure("rows of the import are missing from the cluster's store: give the command again")
        await self._store.txn(*plan_commit(self._owner.cluster_id, self._note.import_id))

    async def _has_witness(self) -> bool:
        return read_seen(self._logs.path) is not None

    async def _write_witness(self) -> None:
        named = await self._store.get(CLUSTER_ID)
        assert named is not None, "the import is committed"
        newest = newest_of(CLUSTER_ID, named.value, named.mod_revision)
        # The directory was closed cleanly: nothing is lost since, in whichever boot of the machine.
        write_seen(self._logs.path, Seen(self._owner.cluster_id, named.mod_revision, boot_id(), newest))
        self._filesystem.sync_directory(self._logs.path)

    async def _is_out_of_use(self) -> bool:
        return not any(self._filesystem.exists(f"{self._logs.path}/{name}") for name in (*_KEPT_FILES, *_DROPPED_FILES))

    async def _move_store(self) -> None:
        path = self._logs.path
        for name in _KEPT_FILES:
            if self._filesystem.exists(f"{path}/{name}"):
                self._filesystem.rename(f"{path}/{name}", f"{path}/{IMPORTED}{name}")
        for name in _DROPPED_FILES:
            remove_if_there(self._filesystem, f"{path}/{name}")
        self._filesystem.sync_directory(path)

    async def _is_done(self) -> bool:
        note = read_note(self._filesystem, self._logs.path)
        return note is not None and note.state is State.DONE

    async def _finish(self) -> None:
        write_note(self._filesystem, self._logs.path, self._note._replace(state=State.DONE))

    # The way back

    async def give_up(self) -> None:
        """Removes everything that the import has written. Raises StorageFailure if the cluster has its id already."""
        if await self._is_committed():
            raise StorageFailure(
                f"the import into cluster {self._note.cluster} cannot be given up: the cluster has the metadata "
                "already. Give the same command without --give-up"
            )
        listing = await self._store.list("")
        reserved = {item.key: item.value for item in listing.items}.get(IMPORT)
        if reserved == self._note.import_id.encode():
            for transaction in plan_giving_up([item.key for item in listing.items], self._note.import_id):
                if not (await self._store.txn(*transaction)).succeeded:
                    raise StoreFailure("the cluster changed meanwhile: give the command again")
        remove_if_there(self._filesystem, f"{self._logs.path}/{NOTE_FILE}")
        self._filesystem.sync_directory(self._logs.path)

"""The storage of a broker: logs and metadata, on disk or in memory."""

import logging
import os
import shlex
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from cordwood.broker.machine import descriptors
from cordwood.broker.machine.clocks import boot_ms
from cordwood.broker.machine.sync_trust import syncfs_can_be_trusted
from cordwood.broker.storage import accepted_losses
from cordwood.broker.storage.lost_properties import known_partitions, lost_properties
from cordwood.cluster.metadata.rows import STORAGE_IDS, TOPIC_NAMES
from cordwood.cluster.registration import ALONE, new_cluster_id
from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.directory_set import DirectorySet, Place, check_apart, look_at
from cordwood.log.directory.identity import EPOCHS_FILE, PROPERTIES_FILE, WITNESS_FILE, Identity, write_identity
from cordwood.log.directory.strays import Known
from cordwood.model.errors import EnvironmentFailure, StorageFailure
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.segments.filesystem import Filesystem, remove_if_there

if TYPE_CHECKING:
    from cordwood.broker.storage.memory import Memory
    from cordwood.cluster.stores.interface import MetadataStore
    from cordwood.log.files.os_filesystem import OsFilesystem
    from cordwood.log.rewriting.compaction import CompactionJob, CompactionResult

logger = logging.getLogger("cordwood.broker")

METADATA_FILE = "metadata.sqlite"
ETCD_PASSWORD = "CORDWOOD_ETCD_PASSWORD"
"""The variable of the environment with the password for etcd."""


LEAST_OPEN_FILES = 16
"""The least files that may be open in each of many directories."""


def _absolute(path: str) -> str:
    """The absolute path, which DescribeLogDirs shows. A relative path would change with the process's directory."""
    return os.path.abspath(path)


async def open_store(settings: BrokerSettings) -> "MetadataStore":
    """Connects to the store that the brokers of a cluster share. Raises StoreFailure."""
    address = settings.store_address
    if address.socket_path:
        from cordwood.cluster.stores.socket.client import SocketStore

        return await SocketStore.connect(address.socket_path, settings.cluster_name)
    try:
        from cordwood.cluster.stores.etcd import EtcdOptions, EtcdStore
    except ImportError as error:
        raise EnvironmentFailure(
            f"a cluster on etcd needs packages that are not installed ({error}): in a clone, pip install '.[cluster]'"
        ) from error
    _check_etcd_login(settings)
    options = EtcdOptions(
        address.endpoints,
        settings.cluster_name,
        allow_old=settings.cluster_etcd_allow_old,
        user=settings.cluster_etcd_user,
        password=os.environ.get(ETCD_PASSWORD, ""),
        password_file=settings.cluster_etcd_password_file,
        ca_file=settings.cluster_etcd_ca_file,
        certificate_file=settings.cluster_etcd_certificate_file,
        key_file=settings.cluster_etcd_key_file,
    )
    return await EtcdStore.open(options)


def _check_etcd_login(settings: BrokerSettings) -> None:
    """Raises EnvironmentFailure for contradictory settings."""
    has_password = bool(settings.cluster_etcd_password_file or os.environ.get(ETCD_PASSWORD))
    if settings.cluster_etcd_user and not has_password:
        raise EnvironmentFailure(
            f"the user {settings.cluster_etcd_user!r} of etcd has no password: give cluster.etcd.password.file, or "
            f"{ETCD_PASSWORD} in the environment"
        )
    if settings.cluster_etcd_password_file and not settings.cluster_etcd_user:
        raise EnvironmentFailure("cluster.etcd.password.file needs cluster.etcd.user")
    if bool(settings.cluster_etcd_certificate_file) != bool(settings.cluster_etcd_key_file):
        raise EnvironmentFailure("cluster.etcd.certificate.file and cluster.etcd.key.file need each other")


def refuse_part_of_cluster(logs: DataDirectory) -> None:
    """Raises StorageFailure if the directory belongs to a broker whose metadata is in the store of a cluster."""
    from cordwood.broker.storage.import_note import refuse_alone

    refuse_alone(logs.filesystem, logs.path)
    if logs.identity() is not None and logs.filesystem.exists(f"{logs.path}/{WITNESS_FILE}"):
        raise StorageFailure(
            f"{logs.path} has the data of a broker that is part of a cluster: its metadata is in the "
            "cluster's store. Start it with --cluster and --store, or give another --data-dir"
        )


def refuse_own_store(logs: DataDirectory) -> None:
    """Raises EnvironmentFailure if the store in a data directory is missing, or not to be used. Changes nothing."""
    from cordwood.cluster.stores.opening_checks import check_present

    refuse_part_of_cluster(logs)
    if logs.identity() is not None:
        check_present(f"{logs.path}/{METADATA_FILE}")


async def open_own_store(logs: DataDirectory) -> "MetadataStore":
    """Opens the store that is kept in a data directory, whose lock the caller holds. Raises EnvironmentFailure."""
    from cordwood.cluster.stores.sqlite import SqliteStore

    refuse_own_store(logs)
    return await SqliteStore.open(f"{logs.path}/{METADATA_FILE}", boot_ms=boot_ms)


def refuse_directories(settings: BrokerSettings) -> None:
    """Raises StorageFailure if the data directories cannot be those of one broker, or one of them is missing. A broker
    in a cluster fills a missing one from other brokers. Changes nothing."""
    directories = _on_disk(settings)
    try:
        found = look_at([Place(each.filesystem, each.path) for each in directories])
        if not settings.cluster_store and not _perhaps_begun(directories[found.home], found):
            _refuse_missing(_home_first(directories, found.home), found)
    finally:
        _close_filesystems(directories)


async def _refuse_store_of_cluster(path: str, store: "MetadataStore") -> None:
    """Raises StorageFailure if the brokers of the store are those of a cluster, whose records lie elsewhere."""
    if (await store.list(STORAGE_IDS)).items:
        raise StorageFailure(
            f"{path} has the metadata of a cluster, and no records: its brokers have directories of their own, as "
            f"{path}/node-1, and their partitions would begin anew here, empty. Nothing was changed. Start the cluster "
            f"with `cordwood cluster up --data-dir {path}`, or give another --data-dir"
        )


class Storage:
    """Logs and metadata. Callers use `open`, `claim` for a cluster, `close_logs` in order, and always `release`."""

    def __init__(self, logs: DataDirectories, found: DirectorySet, settings: BrokerSettings) -> None:
        self.metadata: MetadataStore
        self.logs = logs
        self.standing = ALONE
        self.may_be_newer = False
        """True if the logs may be newer than the cluster's metadata: the state that the broker had seen is unknown."""
        self._found = found
        self._node_id = settings.node_id
        self._open = False

    @classmethod
    async def open(cls, settings: BrokerSettings, *, memory: "Memory | None" = None) -> "Storage":
        """Opens the storage on disk, or in `memory`.

        Raises StorageFailure if another process has a directory, or one is missing; StoreFailure if the metadata cannot
        be used.
        """
        if memory is not None:
            path = settings.data_directories[0]
            directory = _data_directory(memory.filesystem, path, settings, trusted=True, lasts=False)
            storage = cls(DataDirectories([directory]), DirectorySet(0, {}, False), settings)
            storage._take_storage_id(storage.logs.home.identity())
            if settings.cluster_store:
                await storage._join(settings)
            else:
                storage.metadata = memory.open_metadata()
            return storage
        directories = _on_disk(settings)
        try:
            # The directories are locked before the store is read: a store that another process writes would look
            # damaged. No directory is made before the last refusal: a missing directory has to stay missing.
            for directory in directories:
                directory.lock_if_begun()
            found = look_at([Place(each.filesystem, each.path) for each in directories])
            logs = DataDirectories(_home_first(directories, found.home), all_present=found.complete)
            storage = cls(logs, found, settings)
            storage._take_storage_id(logs.home.identity())
            storage._refuse_other_nodes()
            if settings.cluster_store:
                await storage._join(settings)
            else:
                await storage._open_own_store(settings)
        except BaseException:
            for directory in directories:
                directory.release()
            _close_filesystems(directories)
            raise
        return storage

    def _take_storage_id(self, owner: Identity | None) -> None:
        # A lost directory means lost replicas. A new storage id tells the cluster: none of them leads or counts as in
        # sync by its former records.
        kept = owner.storage_id if owner is not None and self._found.complete else ""
        self.standing = ALONE._replace(storage_id=kept or os.urandom(16).hex())

    def _take_older_copy(self, home: DataDirectory) -> None:
        """Takes a directory from before the broker's last registration: records that the broker has acknowledged since
        are not in it. Its new storage id is durable before the cluster hears of the broker."""
        logger.error(
            "%s is an older copy: this broker has run with it since, and may have acknowledged records that are not in "
            "it. Its replicas lead nothing and count as not in sync until they have fetched what they lack; a "
            "partition without another replica waits for `cordwood cluster accept-loss`, or for the newer directory",
            home.path,
        )
        owner = home.identity()
        assert owner is not None, "a directory with a storage id says whose it is"
        self.standing = self.standing._replace(storage_id=os.urandom(16).hex())
        write_identity(home.filesystem, home.path, owner._replace(storage_id=self.standing.storage_id))

    def _owners(self) -> list[tuple[str, Identity]]:
        return [(each.path, owner) for each in self.logs.directories if (owner := each.identity()) is not None]

    def _refuse_other_nodes(self) -> None:
        """Raises StorageFailure if a directory is another node's. With the storage id of that node, this node would
        count as one that lost its records."""
        for path, owner in self._owners():
            if owner.node_id != self._node_id:
                raise StorageFailure(
                    f"{path} has the data of node {owner.node_id}, not of node {self._node_id}: node.id was changed, "
                    "or the directories of two nodes were mixed up. Nothing was changed, and no cluster has heard of "
                    "this start"
                )

    async def _open_own_store(self, settings: BrokerSettings) -> None:
        """Opens the store of a broker that is a cluster of one."""
        home = self.logs.home
        if not _perhaps_begun(home, self._found):
            _refuse_missing(self.logs.directories, self._found)
        if home.arranged_for_workers and len(self.logs.directories) > 1:
            raise StorageFailure(
                f"{home.path} has partitions in the homes of workers, which use one directory only: start and stop "
                f"`cordwood serve --data-dir {home.path}` once, which takes them back; then give all directories"
            )
        refuse_own_store(home)
        home.take_once()
        self.metadata = await open_own_store(home)
        try:
            if home.arranged_for_workers:
                from cordwood.broker.workers.arranging import arrange_offline

                await arrange_offline(home, self.metadata, [settings.node_id], settings, alone=True)
            elif home.identity() is None:
                await _refuse_store_of_cluster(home.path, self.metadata)
                if (await self.metadata.list(TOPIC_NAMES)).items:
                    _refuse_missing(self.logs.directories, self._found)
        except BaseException:
            await self.metadata.close()
            raise

    async def _join(self, settings: BrokerSettings) -> None:
        """Connects to the cluster's store, and refuses a store that does not fit the directories."""
        from cordwood.broker.storage.cluster_witness import (
            check_cluster,
            is_older_copy,
            may_have_lost,
            read_epochs,
            read_seen,
        )
        from cordwood.broker.storage.import_note import refuse_other_import, refuse_unfinished

        home = self.logs.home
        path = home.path
        owners = self._owners()
        imported = refuse_unfinished(home.filesystem, path)
        for each in self.logs.directories:
            if each.filesystem.exists(f"{each.path}/{METADATA_FILE}"):
                raise StorageFailure(
                    f"{each.path} has the data of a broker with metadata of its own ({METADATA_FILE}), which a cluster "
                    "does not know: its records would not be served. Take it into an empty cluster with `cordwood "
                    "cluster import`, give another --data-dir, or start without --store"
                )
        for lost in _missing_in_words(self._found):
            logger.error("%s: the replicas in it are lost here, and are filled anew from other brokers", lost)
        # Lost memory takes the storage id with it: its next owner is not taken for the former one.
        seen = None if self.in_memory else read_seen(path)
        # An operator who goes on with an older store moves the witness away: then the epochs do not count either.
        epochs = None if seen is None else read_epochs(path)
        self.may_be_newer = bool(owners) and seen is None and not self.in_memory
        stopped_cleanly = all(each.stopped_cleanly() for each in self.logs.directories if each.identity() is not None)
        unclean = may_have_lost(seen, stopped_cleanly=stopped_cleanly)
        self.standing = self.standing._replace(clustered=True, unclean=unclean)
        self.metadata = await open_store(settings)
        try:
            if not owners:
                await check_cluster(self.metadata, path, None, seen, epochs)
            for own_path, owner in owners:
                await check_cluster(self.metadata, own_path, owner.cluster_id, seen, epochs)
            if imported is not None:
                await refuse_other_import(self.metadata, path, imported)
            # The directories come before the registration: the cluster must not hear of a broker that cannot use them.
            for each in self.logs.directories:
                each.take_once()
            kept = self.standing.storage_id
            if seen is not None and await is_older_copy(self.metadata, self._node_id, kept, seen):
                self._take_older_copy(home)
        except BaseException:
            await self.metadata.close()
            raise

    @property
    def in_memory(self) -> bool:
        """True if the data is in memory, where syncing costs nothing."""
        from cordwood.log.files.memory_filesystem import MemoryFilesystem

        return isinstance(self.logs.home.filesystem, MemoryFilesystem)

    @property
    def sync_everything(self) -> Callable[[], None] | None:
        """Syncs the filesystem of the only directory; None if syncfs cannot be trusted. Logs in several directories are
        synced one by one: a sync of all disks would last as long as that of the slowest."""
        trusted = len(self.logs.directories) == 1 and self.logs.home.sync_together
        return self.logs.home.filesystem.sync_everything if trusted else None

    @property
    def max_open_files(self) -> int:
        """The number of log files that may be open at a time."""
        return sum(filesystem.max_open_files for filesystem in _os_filesystems(self.logs.directories))

    def claim(self, cluster_id: str, known: Known | None = None) -> None:
        """Takes the data directories for this node of this cluster; `known` are the topics of its metadata. Raises
        StorageFailure if another node owns a directory, or two have the log of one partition."""
        identity = Identity(cluster_id, self._node_id, self.standing.storage_id)
        self.logs.open(identity, new_id=lambda: new_cluster_id(uuid4()), known=known)
        self._open = True
        home = self.logs.home
        for former in self.logs.directories[1:]:
            # A former home may become the home again: its files must not stand for all later changes.
            remove_if_there(former.filesystem, f"{former.path}/{WITNESS_FILE}")
            remove_if_there(former.filesystem, f"{former.path}/{EPOCHS_FILE}")
        for words in accepted_losses.begun_empty(home.filesystem, home.path, self.logs.directory_of):
            logger.warning("%s", words)
        for problem in self.logs.problems:
            logger.warning("%s", problem)
        if not self.in_memory:
            for directory in self.logs.directories:
                _look_at_mode(directory.path)
        self._learn_how_to_read()

    def _learn_how_to_read(self) -> None:
        """Tests whether reads can be told not to wait: a broker that serves only reads would never find out."""
        for filesystem in _os_filesystems(self.logs.directories):
            descriptor = os.open(f"{filesystem.root}/{PROPERTIES_FILE}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                filesystem.learn_reads_without_waiting(descriptor, 0)
            finally:
                os.close(descriptor)

    def compact(self, job: "CompactionJob") -> "CompactionResult":
        """Compacts segments, in a thread; segments on disk in another process."""
        if self.in_memory:
            from cordwood.log.rewriting.compaction import compact

            return compact(self.logs.home.filesystem, job)
        from cordwood.log.rewriting.compaction_process import compact_in_process

        return compact_in_process(job)

    def close_logs(self) -> None:
        """Checkpoints everything and marks the directories as cleanly closed."""
        self._open = False
        self.logs.close(release=False)

    def save_high_watermarks(self) -> None:
        """Saves how far the logs are committed: a follower knows by it which records it must not cut. For a broker that
        ends while its disks are sound, and whose threads have ended."""
        if not self._open:
            return
        try:
            self.logs.save_offsets(self.logs.logs)()
        except StorageFailure as failure:
            logger.error("the high watermarks cannot be saved: %s", failure)

    async def release(self) -> None:
        """Releases all resources. The next start recovers logs that were not closed."""
        if self._open:
            self._open = False
            self.logs.close(clean=False, release=False)
        await self.metadata.close()
        # The locks are released last: the next process reads the store as soon as it has the locks.
        self.logs.release()
        _close_filesystems(self.logs.directories)


def _os_filesystems(directories: Sequence[DataDirectory]) -> "list[OsFilesystem]":
    from cordwood.log.files.os_filesystem import OsFilesystem

    filesystems = [directory.filesystem for directory in directories]
    return [filesystem for filesystem in filesystems if isinstance(filesystem, OsFilesystem)]


def _close_filesystems(directories: Sequence[DataDirectory]) -> None:
    for filesystem in _os_filesystems(directories):
        filesystem.close()


def _look_at_mode(path: str) -> None:
    """Warns of a data directory that was made for others, too: by an earlier build, or by hand."""
    with suppress(OSError):
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            logger.warning(
                "other users of this machine may look into %s (mode %o), which has the records of all topics: "
                "chmod -R go-rwx %s",
                path,
                mode,
                path,
            )


def _on_disk(settings: BrokerSettings) -> list[DataDirectory]:
    """The data directories of the settings, in their order. Raises StorageFailure if two of them are one."""
    from cordwood.log.files.os_filesystem import OsFilesystem

    paths = [_absolute(path) for path in settings.data_directories]
    check_apart([os.path.realpath(path) for path in paths])
    max_open_files = descriptors.log_files(settings.open_files_max)
    return [
        _data_directory(
            OsFilesystem(
                path,
                max_open_files=max(LEAST_OPEN_FILES, max_open_files // len(paths)),
                tail_bytes=settings.tail_memory_max_bytes // len(paths),
            ),
            path,
            settings,
            trusted=syncfs_can_be_trusted(path),
            lasts=True,
        )
        for path in paths
    ]


def _home_first(directories: Sequence[DataDirectory], home: int) -> list[DataDirectory]:
    return [directories[home], *directories[:home], *directories[home + 1 :]]


def _data_directory(
    filesystem: Filesystem, path: str, settings: BrokerSettings, *, trusted: bool, lasts: bool
) -> DataDirectory:
    return DataDirectory(
        filesystem,
        path,
        sync_together=trusted,
        witness_ends=lasts,
    )


def _perhaps_begun(home: DataDirectory, found: DirectorySet) -> bool:
    """True if the metadata decides whether the first start was interrupted. A home that was emptied has none."""
    return found.perhaps_begun and home.filesystem.exists(f"{home.path}/{METADATA_FILE}")


def _missing_in_words(found: DirectorySet) -> list[str]:
    if found.home_missing:
        at = f"that was at {found.home_path}" if found.home_path else "which the given ones name"
        return [f"the data directory with the broker's metadata, {at}, is missing or was emptied"]
    return [
        f"the data directory that was at {path} (directory.id {directory_id}) is missing or was emptied"
        for directory_id, path in sorted(found.missing.items(), key=lambda item: item[1])
    ]


def _refuse_lost_properties(directories: Sequence[DataDirectory], found: DirectorySet) -> None:
    """Raises StorageFailure if a directory that seems to be missing exists, with logs."""
    home, *others = (Place(each.filesystem, each.path) for each in directories)
    ids = {path: directory_id for directory_id, path in found.missing.items()}
    if not ids.keys() & {each.path for each in others}:
        return
    known = known_partitions(f"{home.path}/{METADATA_FILE}")
    told = []
    for place in others:
        beside = [home, *(each for each in others if each is not place)]
        if place.path in ids and (words := lost_properties(place, ids[place.path], home, beside, known)):
            told.append(words)
    if told:
        raise StorageFailure(f"{'; '.join(told)}. Nothing was changed")


def _refuse_missing(directories: Sequence[DataDirectory], found: DirectorySet) -> None:
    """Raises StorageFailure if a directory of a broker alone is missing."""
    if found.complete:
        return
    if found.others_homes:
        mixed_up = "; ".join(
            f"{path} belongs to the broker whose metadata was {f'in {home}' if home else 'elsewhere'}"
            for path, home in sorted(found.others_homes.items())
        )
        what_now = f"{mixed_up}: the directories of two brokers were mixed up. Nothing was changed"
    elif not found.home_missing:
        _refuse_lost_properties(directories, found)
        home = shlex.quote(directories[0].path)
        commands = " and ".join(
            f"`cordwood recover accept-lost-directory {home} {shlex.quote(path)}`"
            for path in sorted(found.missing.values())
        )
        what_now = (
            "Its partitions would begin anew, empty. Nothing was changed. Mount the disk, or name the directory in "
            f"log.dirs. If it is lost for good, {commands} accepts that its records are gone"
        )
    else:
        what_now = "Give all directories of the broker in log.dirs. Nothing was changed"
        for directory in directories:
            if directory.identity() is None and directory.filesystem.exists(f"{directory.path}/{METADATA_FILE}"):
                other, owner = next(
                    (each.path, owner) for each in directories if (owner := each.identity()) is not None
                )
                what_now += (
                    f". {directory.path} has metadata, and no {PROPERTIES_FILE}. If it is that directory, copy "
                    f"{other}/{PROPERTIES_FILE} there, and in the copy write directory.id={owner.home_id} in place of "
                    "the lines with directory.id and home.directory.id"
                )
    raise StorageFailure(f"{'; '.join(_missing_in_words(found))}. {what_now}")

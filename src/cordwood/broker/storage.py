"""The storage of a broker: logs and metadata, on disk or in memory."""

import logging
import os
from typing import TYPE_CHECKING

from cordwood.broker import descriptors
from cordwood.broker.clocks import boot_ms
from cordwood.broker.sync_trust import syncfs_can_be_trusted
from cordwood.cluster.registration import ALONE
from cordwood.cluster.rows import STORAGE_IDS
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.identity import PROPERTIES_FILE, Identity
from cordwood.model.broker_settings import BrokerSettings
from cordwood.model.errors import EnvironmentFailure, StorageFailure
from cordwood.segments.filesystem import Filesystem

if TYPE_CHECKING:
    from cordwood.broker.memory import Memory
    from cordwood.cluster.stores.interface import MetadataStore
    from cordwood.log.compaction import CompactionJob, CompactionResult

logger = logging.getLogger("cordwood.broker")

METADATA_FILE = "metadata.sqlite"
WITNESS_FILE = "cluster-witness"
ETCD_PASSWORD = "CORDWOOD_ETCD_PASSWORD"
"""The variable of the environment with the password for etcd."""


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
    """Raises EnvironmentFailure for settings that cannot be meant."""
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
    """Raises StorageFailure if the directory is that of a broker whose metadata is in the store of a cluster."""
    from cordwood.broker.importing.note import refuse_alone

    refuse_alone(logs.filesystem, logs.path)
    if logs.identity() is not None and logs.filesystem.exists(f"{logs.path}/{WITNESS_FILE}"):
        raise StorageFailure(
            f"{logs.path} has the data of a broker that is part of a cluster: its metadata is in the "
            "cluster's store. Start it with --cluster and --store, or give another --data-dir"
        )


async def open_own_store(logs: DataDirectory) -> "MetadataStore":
    """Opens the store that is kept in a data directory, whose lock the caller holds. Raises EnvironmentFailure."""
    from cordwood.cluster.stores.opening_checks import check_present
    from cordwood.cluster.stores.sqlite import SqliteStore

    refuse_part_of_cluster(logs)
    path = f"{logs.path}/{METADATA_FILE}"
    if logs.identity() is not None:
        check_present(path)
    return await SqliteStore.open(path, boot_ms=boot_ms)


async def _refuse_store_of_cluster(path: str, store: "MetadataStore") -> None:
    """Raises StorageFailure if the brokers of the store are those of a cluster, whose records lie elsewhere."""
    if (await store.list(STORAGE_IDS)).items:
        raise StorageFailure(
            f"{path} has the metadata of a cluster, and no records: its brokers have directories of their own, as "
            f"{path}/node-1, and their partitions would begin anew here, empty. Nothing was changed. Start the cluster "
            f"with `cordwood cluster up --data-dir {path}`, or give another --data-dir"
        )


class Storage:
    """Logs and metadata. Callers `open`, then `claim` for a cluster, `close_logs` in order, and always `release`."""

    def __init__(self, filesystem: Filesystem, path: str, settings: BrokerSettings) -> None:
        self.filesystem = filesystem
        self.metadata: MetadataStore
        self.syncfs_trusted = self.in_memory or syncfs_can_be_trusted(path)
        self.logs = DataDirectory(
            filesystem,
            path,
            producer_expiration_ms=settings.producer_id_expiration_ms,
            sync_together=self.syncfs_trusted,
            witness_ends=not self.in_memory,
        )
        self.standing = ALONE
        self.may_be_newer = False
        """Whether the logs may be newer than the cluster's metadata: nothing tells how far the broker had seen it."""
        self._node_id = settings.node_id
        self._open = False

    @classmethod
    async def open(cls, settings: BrokerSettings, *, memory: "Memory | None" = None) -> "Storage":
        """Opens the storage on disk, or in `memory`.

        Raises StorageFailure if another process has the directory, StoreFailure if the metadata cannot be used.
        """
        path = settings.data_directory
        if memory is not None:
            storage = cls(memory.filesystem, path, settings)
            storage._take_storage_id(storage.logs.identity())
            if settings.cluster_store:
                await storage._join(settings)
            else:
                storage.metadata = memory.open_metadata()
            return storage
        from cordwood.log.files.os_filesystem import OsFilesystem

        path = _absolute(path)
        filesystem = OsFilesystem(
            path,
            max_open_files=descriptors.log_files(settings.open_files_max),
            tail_bytes=settings.tail_memory_max_bytes,
        )
        storage = cls(filesystem, path, settings)
        # The directory is locked before the store is read: a store that another process writes would look damaged.
        storage.logs.take()
        try:
            storage._take_storage_id(storage.logs.identity())
            if settings.cluster_store:
                await storage._join(settings)
            else:
                await storage._open_own_store(settings)
        except BaseException:
            storage.logs.release()
            raise
        return storage

    def _take_storage_id(self, owner: Identity | None) -> None:
        storage_id = (owner.storage_id if owner is not None else "") or os.urandom(16).hex()
        self.standing = ALONE._replace(storage_id=storage_id)

    async def _open_own_store(self, settings: BrokerSettings) -> None:
        """Opens the store of a broker that is a cluster of one."""
        self.metadata = await open_own_store(self.logs)
        try:
            if self.logs.arranged_for_workers:
                from cordwood.broker.workers.arranging import arrange_offline

                await arrange_offline(self.logs, self.metadata, [settings.node_id], settings, alone=True)
            elif self.logs.identity() is None:
                await _refuse_store_of_cluster(self.logs.path, self.metadata)
        except BaseException:
            await self.metadata.close()
            raise

    async def _join(self, settings: BrokerSettings) -> None:
        """Connects to the cluster's store, and refuses one that does not fit the directory."""
        from cordwood.broker.cluster_witness import check_cluster, may_have_lost, read_seen
        from cordwood.broker.importing.note import refuse_other_import, refuse_unfinished

        path, owner = self.logs.path, self.logs.identity()
        imported = refuse_unfinished(self.filesystem, path)
        if self.filesystem.exists(f"{path}/{METADATA_FILE}"):
            raise StorageFailure(
                f"{path} has the data of a broker with metadata of its own ({METADATA_FILE}), which a cluster does not "
                "know: its records would not be served. Take it into an empty cluster with `cordwood cluster import`, "
                "give another --data-dir, or start without --store"
            )
        if owner is not None and owner.node_id != self._node_id:
            # Registered with the storage id of another directory, this node would count as one that lost its records.
            raise StorageFailure(
                f"{path} has the data of node {owner.node_id}, not of node {self._node_id}: node.id was changed, or "
                "the directories of two nodes were mixed up. The cluster has not heard of this start"
            )
        # Memory that is gone takes the storage id with it: nobody takes its next owner for the former one.
        seen = None if self.in_memory else read_seen(path)
        self.may_be_newer = owner is not None and seen is None and not self.in_memory
        unclean = may_have_lost(seen, stopped_cleanly=self.logs.stopped_cleanly())
        self.standing = self.standing._replace(clustered=True, unclean=unclean)
        self.metadata = await open_store(settings)
        try:
            await check_cluster(self.metadata, path, None if owner is None else owner.cluster_id, seen)
            if imported is not None:
                await refuse_other_import(self.metadata, path, imported)
        except BaseException:
            await self.metadata.close()
            raise

    @property
    def in_memory(self) -> bool:
        """Whether the data is in memory, where syncing costs nothing."""
        from cordwood.log.files.memory_filesystem import MemoryFilesystem

        return isinstance(self.filesystem, MemoryFilesystem)

    @property
    def max_open_files(self) -> int:
        """The number of log files that may be open at a time."""
        from cordwood.log.files.os_filesystem import OsFilesystem

        return self.filesystem.max_open_files if isinstance(self.filesystem, OsFilesystem) else 0

    def claim(self, cluster_id: str) -> None:
        """Takes the data directory for this node of this cluster. Raises StorageFailure if another node owns it."""
        self.logs.open(Identity(cluster_id, self._node_id, self.standing.storage_id))
        self._open = True
        for problem in self.logs.problems:
            logger.warning("%s", problem)
        self._learn_how_to_read()

    def _learn_how_to_read(self) -> None:
        """Finds out whether reads can be told not to wait: a broker that serves only reads would never find out."""
        from cordwood.log.files.os_filesystem import OsFilesystem

        if not isinstance(self.filesystem, OsFilesystem):
            return
        descriptor = os.open(f"{self.logs.path}/{PROPERTIES_FILE}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.filesystem.learn_reads_without_waiting(descriptor, 0)
        finally:
            os.close(descriptor)

    def compact(self, job: "CompactionJob") -> "CompactionResult":
        """Compacts segments, in a thread; segments on disk in another process."""
        if self.in_memory:
            from cordwood.log.compaction import compact

            return compact(self.filesystem, job)
        from cordwood.log.compaction_process import compact_in_process

        return compact_in_process(job)

    def close_logs(self) -> None:
        """Checkpoints everything and marks the directory as cleanly closed."""
        self._open = False
        self.logs.close(release=False)

    async def release(self) -> None:
        """Releases all resources. The next start recovers logs that were not closed."""
        if self._open:
            self._open = False
            self.logs.close(clean=False, release=False)
        await self.metadata.close()
        # The lock is released last: the next process reads the store as soon as it has the lock.
        self.logs.release()
        from cordwood.log.files.os_filesystem import OsFilesystem

        if isinstance(self.filesystem, OsFilesystem):
            self.filesystem.close()

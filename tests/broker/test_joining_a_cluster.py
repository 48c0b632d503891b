"""A broker whose metadata is in a store that others share: what it keeps itself, and when it refuses to start."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cordwood.broker.server import Server
from cordwood.broker.storage import cluster_witness
from cordwood.broker.storage.cluster_witness import (
    ClusterWitness,
    Seen,
    boot_id,
    read_epochs,
    read_seen,
    write_epochs,
    write_seen,
)
from cordwood.broker.storage.storage import Storage
from cordwood.cluster.metadata.known_epochs import KnownEpochs
from cordwood.cluster.stores.interface import Put, StoreFailure
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.cluster.stores.socket.client import SocketStore
from cordwood.cluster.stores.socket.server import StoreServer
from cordwood.log.directory.identity import EPOCHS_FILE, WITNESS_FILE, read_identity
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.model.errors import EnvironmentFailure, StorageFailure
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.setting import InvalidSetting


@asynccontextmanager
async def a_store(directory: Path) -> AsyncIterator[str]:
    """The URL of a store for a cluster named woods."""
    server = await StoreServer.start(MemoryStore(), str(directory / "store.sock"), "woods")
    try:
        yield f"unix://{directory}/store.sock"
    finally:
        await server.close()


def settings(directory: Path, store: str, node_id: int = 1) -> BrokerSettings:
    return BrokerSettings.from_texts(
        {
            "log.dirs": str(directory),
            "cluster.name": "woods",
            "cluster.store": store,
            "node.id": str(node_id),
            "listeners": "127.0.0.1:0",
        }
    )


def files_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def storage_id(directory: Path) -> str:
    owner = read_identity(OsFilesystem(str(directory)), str(directory))
    assert owner is not None
    return owner.storage_id


async def change(store: str) -> int:
    """A change of the metadata that no broker made; returns its revision."""
    client = await SocketStore.connect(store.removeprefix("unix://"), "woods")
    result = await client.txn((), [Put("configs/brokers/default", b'{"num.partitions":"7"}')])
    await client.close()
    return result.revision


async def test_brokers_of_one_store_know_each_other_and_keep_no_metadata_of_their_own(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        one = await Server.start(settings(tmp_path / "one", store, 1))
        two = await Server.start(settings(tmp_path / "two", store, 2))
        assert one.node.image.cluster_id == two.node.image.cluster_id != ""
        assert sorted(two.node.image.brokers) == [1, 2]
        assert not any(name.startswith("metadata") for name in files_in(tmp_path / "one"))
        await one.stop()
        await two.stop()
        assert len({storage_id(tmp_path / "one"), storage_id(tmp_path / "two")} - {""}) == 2


async def test_a_broker_starts_again_on_its_directory_and_has_noted_how_far_it_saw(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        server = await Server.start(settings(tmp_path / "one", store))
        begun = read_seen(str(tmp_path / "one"))
        assert begun is not None
        assert server._metadata_writer is not None
        revision = await change(store)
        await server._metadata_writer.follower.reach(revision)
        await server.stop()
        seen = read_seen(str(tmp_path / "one"))
        assert seen is not None
        assert begun.revision < revision <= seen.revision
        server = await Server.start(settings(tmp_path / "one", store))
        assert server.node.image.default_broker_config == {"num.partitions": "7"}
        await server.stop()


async def test_a_store_that_went_back_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        server = await Server.start(settings(tmp_path / "one", store))
        await server.stop()
        seen = read_seen(str(tmp_path / "one"))
        assert seen is not None
        write_seen(str(tmp_path / "one"), seen._replace(revision=seen.revision + 1000))
        with pytest.raises(StoreFailure, match=r"went back: it is at revision \d+, and was at revision \d+"):
            await Storage.open(settings(tmp_path / "one", store))
        (tmp_path / "one" / WITNESS_FILE).unlink()
        server = await Server.start(settings(tmp_path / "one", store))
        await server.stop()


async def test_a_store_that_went_back_and_was_written_since_is_refused(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        server = await Server.start(settings(tmp_path / "one", store))
        await server.stop()
        for _ in range(3):
            await change(store)
        seen = read_seen(str(tmp_path / "one"))
        assert seen is not None
        assert seen.newest is not None
        other = seen.newest._replace(checksum=7)
        write_seen(str(tmp_path / "one"), seen._replace(newest=other))
        with pytest.raises(
            StoreFailure, match=r"went back: it is at revision \d+, and was at revision \d+, with another"
        ):
            await Storage.open(settings(tmp_path / "one", store))
        write_seen(str(tmp_path / "one"), seen)
        server = await Server.start(settings(tmp_path / "one", store))
        await server.stop()


async def test_a_store_that_cannot_tell_its_history_is_compared_by_the_epochs_that_were_seen(tmp_path: Path) -> None:
    directory = str(tmp_path / "one")
    async with a_store(tmp_path) as store:
        server = await Server.start(settings(tmp_path / "one", store))
        await server.stop()
        epochs = read_epochs(directory)
        assert epochs in (KnownEpochs({1: 1}, {}), KnownEpochs({1: 2}, {})), "a broker may not see its own end"
        revision = await change(store)
        client = await SocketStore.connect(store.removeprefix("unix://"), "woods")
        await client.compact(revision)
        await client.close()
        write_epochs(directory, KnownEpochs({1: 3}, {}))
        with pytest.raises(StoreFailure, match=r"went back.*\(broker 1 is in epoch 2, and was in epoch 3\)"):
            await Storage.open(settings(tmp_path / "one", store))
        write_epochs(directory, epochs)
        await (await Server.start(settings(tmp_path / "one", store))).stop()
        (tmp_path / "one" / EPOCHS_FILE).unlink()  # an earlier release kept none
        await (await Server.start(settings(tmp_path / "one", store))).stop()
        assert read_epochs(directory) in (KnownEpochs({1: 5}, {}), KnownEpochs({1: 6}, {}))


async def test_an_empty_store_is_refused_to_a_directory_with_data(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        server = await Server.start(settings(tmp_path / "one", store))
        await server.stop()
    async with a_store(tmp_path) as store:
        with pytest.raises(StoreFailure, match=r"went back: it is empty.*make a cluster of the brokers' directories"):
            await Storage.open(settings(tmp_path / "one", store))


async def test_the_store_of_another_cluster_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with a_store(tmp_path) as store, a_store(tmp_path / "other") as other:
        for name, url in (("one", store), ("two", other)):
            server = await Server.start(settings(tmp_path / name, url))
            await server.stop()
        await change(other)
        with pytest.raises(StoreFailure, match="--store and --cluster, or another --data-dir"):
            await Storage.open(settings(tmp_path / "one", other))


async def test_a_directory_is_of_a_cluster_or_of_a_broker_alone_and_not_both(tmp_path: Path) -> None:
    alone = BrokerSettings.from_texts({"log.dirs": str(tmp_path / "alone"), "listeners": "127.0.0.1:0"})
    server = await Server.start(alone)
    await server.stop()
    async with a_store(tmp_path) as store:
        with pytest.raises(StorageFailure, match="metadata of its own"):
            await Storage.open(settings(tmp_path / "alone", store))
        server = await Server.start(settings(tmp_path / "one", store))
        await server.stop()
    with pytest.raises(StorageFailure, match="--cluster and --store"):
        await Storage.open(BrokerSettings.from_texts({"log.dirs": str(tmp_path / "one")}))


async def test_another_boot_without_the_mark_of_a_clean_stop_is_unclean(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        found = []
        for cleanly, other_boot in ((False, False), (False, True), (True, True), (True, False)):
            storage = await Storage.open(settings(tmp_path / "one", store))
            found.append(storage.standing.unclean)
            storage.claim("cluster")
            boot = "another boot" if other_boot else boot_id()
            write_seen(str(tmp_path / "one"), Seen("cluster", 0, boot))
            await storage.metadata.txn((), [Put("cluster_id", b"cluster")])
            if cleanly:
                storage.close_logs()
            await storage.release()
        assert found == [False, False, True, False]


async def test_a_broker_on_another_directory_than_before_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_store(tmp_path) as store:
        for directory in ("one", "one"):
            await (await Server.start(settings(tmp_path / directory, store))).stop()
        assert "had another before" not in caplog.text
        # Nobody mounted the disk.
        await (await Server.start(settings(tmp_path / "empty", store))).stop()
        former = storage_id(tmp_path / "one")
        assert f"the data directory is new: broker 1 had another before (storage id {former}, now " in caplog.text
        assert "broker 1 takes part with another data directory than before" in caplog.text


async def test_a_node_id_belongs_to_one_directory_while_its_broker_lives(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        one = await Server.start(settings(tmp_path / "one", store))
        quick = BrokerSettings.from_texts({**settings(tmp_path / "two", store).texts, "broker.lease.ms": "2000"})
        with pytest.raises(StoreFailure, match=r"node\.id 1 is taken: a broker with another data directory"):
            await Server.start(quick)
        await one.stop()
        two = await Server.start(quick)
        await two.stop()


async def test_a_damaged_witness_is_said(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / WITNESS_FILE).write_bytes(b"00000000\n{}")
    async with a_store(tmp_path) as store:
        with pytest.raises(StorageFailure, match="move the file away"):
            await Storage.open(settings(tmp_path / "one", store))


async def test_a_store_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="cannot be reached"):
        await Storage.open(settings(tmp_path / "one", f"unix://{tmp_path}/nowhere.sock"))


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"cluster.store": "unix:///x", "node.id": "1"}, "needs cluster.name"),
        ({"cluster.store": "unix:///x", "cluster.name": "a"}, "needs node.id"),
        ({"cluster.name": "a"}, "needs cluster.store"),
        ({"cluster.store": "unix://x", "cluster.name": "a", "node.id": "1"}, "expected etcd://"),
        ({"cluster.store": "etcd://", "cluster.name": "a", "node.id": "1"}, "expected etcd://"),
        ({"cluster.store": "etcd://host", "cluster.name": "a", "node.id": "1"}, "expected etcd://"),
        ({"cluster.store": "etcd://host:1", "cluster.name": "a/b", "node.id": "1"}, "without a slash"),
    ],
)
def test_settings_of_a_cluster_that_lack_something_say_what(texts: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        BrokerSettings.from_texts(texts)


def test_a_broker_alone_starts_without_the_stores_of_clusters(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from cordwood.broker.server import Server\n"
        "from cordwood.model.settings.broker_settings import BrokerSettings\n"
        f"texts = {{'log.dirs': {str(tmp_path / 'one')!r}, 'listeners': '127.0.0.1:0'}}\n"
        "async def run():\n"
        "    server = await Server.start(BrokerSettings.from_texts(texts))\n"
        "    await server.stop()\n"
        "asyncio.run(run())\n"
        "print(*sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "grpc" not in ran.stdout
    assert "stores.socket" not in ran.stdout
    assert "cluster_witness" not in ran.stdout


async def test_a_copy_from_before_the_last_registration_gets_another_storage_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its replicas would count as in sync, and lead, without the records that were acknowledged since."""
    one, copy = tmp_path / "one", tmp_path / "copy"
    async with a_store(tmp_path) as store:
        await (await Server.start(settings(one, store))).stop()
        shutil.copytree(one, copy)
        await (await Server.start(settings(one, store))).stop()
        assert storage_id(copy) == storage_id(one)
        assert "older copy" not in caplog.text
        await (await Server.start(settings(copy, store))).stop()
        assert "is an older copy" in caplog.text
        assert storage_id(copy) != storage_id(one)
        caplog.clear()
        await (await Server.start(settings(copy, store))).stop()
        assert "older copy" not in caplog.text, "from now on it is the broker's directory"


async def test_a_copy_of_a_running_brokers_directory_is_older_after_the_clean_stop(tmp_path: Path) -> None:
    """The broker went on to acknowledge records, which the copy lacks."""
    one, copy = tmp_path / "one", tmp_path / "copy"
    async with a_store(tmp_path) as store:
        server = await Server.start(settings(one, store))
        shutil.copytree(one, copy)
        await server.stop()
        before = storage_id(one)
        await (await Server.start(settings(copy, store))).stop()
        assert storage_id(copy) != before


async def test_a_stop_on_a_disk_that_takes_no_note_ends_no_epoch_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's own directory would look like an older copy at its next start."""
    one = tmp_path / "one"
    real = cluster_witness.write_seen

    def full(directory: str, seen: Seen) -> None:
        if seen.broker_epoch == 2:
            raise OSError(errno.ENOSPC, "no space left")
        real(directory, seen)

    async with a_store(tmp_path) as store:
        server = await Server.start(settings(one, store))
        before = storage_id(one)
        monkeypatch.setattr(cluster_witness, "write_seen", full)
        await server.stop()
        monkeypatch.undo()
        seen = read_seen(str(one))
        assert seen is not None
        assert seen.broker_epoch == 1
        await (await Server.start(settings(one, store))).stop()
        assert storage_id(one) == before


async def test_a_directory_is_no_older_copy_if_its_broker_died_before_it_registered(tmp_path: Path) -> None:
    directory = str(tmp_path / "one")
    async with a_store(tmp_path) as store:
        await (await Server.start(settings(tmp_path / "one", store))).stop()
        seen = read_seen(directory)
        assert seen is not None
        assert seen.broker_epoch == 2, "the epoch in which the broker ran is over"
        before = storage_id(tmp_path / "one")
        write_seen(directory, seen._replace(broker_epoch=3))
        await (await Server.start(settings(tmp_path / "one", store))).stop()
        assert storage_id(tmp_path / "one") == before


@pytest.mark.parametrize("known", [0, 1])
async def test_a_directory_that_comes_back_after_another_one_is_no_older_copy(
    tmp_path: Path, known: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk was not mounted for a while, or a release ran that notes no epochs."""
    one = tmp_path / "one"
    async with a_store(tmp_path) as store:
        await (await Server.start(settings(one, store))).stop()
        before = storage_id(one)
        seen = read_seen(str(one))
        assert seen is not None
        write_seen(str(one), seen._replace(broker_epoch=known))
        await (await Server.start(settings(one if known == 0 else tmp_path / "two", store))).stop()
        write_seen(str(one), seen._replace(broker_epoch=known))
        await (await Server.start(settings(one, store))).stop()
        assert storage_id(one) == before
        assert "older copy" not in caplog.text


async def test_a_witness_that_cannot_be_written_knows_of_no_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the note, the broker would take its own directory for an older copy at its next start."""

    def full(directory: str, seen: Seen) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    write_seen(str(tmp_path), Seen("cluster", 7, "boot", broker_epoch=3))
    witness = ClusterWitness(str(tmp_path), lambda: KnownEpochs({}, {}))
    assert witness.note_epoch(4, registers=True)
    noted = read_seen(str(tmp_path))
    assert noted is not None
    assert noted.broker_epoch == 4
    monkeypatch.setattr(cluster_witness, "write_seen", full)
    assert not witness.note_epoch(5, registers=True)
    assert read_seen(str(tmp_path)) is None


def test_a_witness_that_can_neither_be_written_nor_removed_keeps_the_broker_from_registering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that became read-only. A second attempt in the same epoch is refused as well."""

    def read_only(*arguments: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    before = Seen("cluster", 7, "boot", broker_epoch=3)
    write_seen(str(tmp_path), before)
    witness = ClusterWitness(str(tmp_path), lambda: KnownEpochs({}, {}))
    with monkeypatch.context() as disk:
        disk.setattr(cluster_witness, "write_seen", read_only)
        disk.setattr("os.unlink", read_only)
        for _ in range(2):
            with pytest.raises(StorageFailure, match=r"does not register: .*can neither be written .* nor removed"):
                witness.note_epoch(4, registers=True)
            assert read_seen(str(tmp_path)) == before
    witness.note_epoch(4, registers=True)
    assert read_seen(str(tmp_path)) == before._replace(broker_epoch=4)


@pytest.mark.parametrize("has_space", [True, False])
def test_a_power_cut_brings_no_earlier_witness_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_space: bool
) -> None:
    """The directory is synced after the witness is replaced, or removed for lack of space."""
    witness_file = tmp_path / WITNESS_FILE
    write_seen(str(tmp_path), Seen("cluster", 7, "boot", broker_epoch=3))
    old = witness_file.stat().st_ino
    synced: list[bool] = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            synced.append(not witness_file.exists() or witness_file.stat().st_ino != old)
        elif not has_space:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    ClusterWitness(str(tmp_path), lambda: KnownEpochs({}, {})).note_epoch(4, registers=True)
    assert synced == [True]
    assert witness_file.exists() == has_space

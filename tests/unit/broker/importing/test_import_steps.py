"""An import into a cluster's store: it can end at any point and go on, and takes nothing that is not the broker's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.workers.test_arranging import Died, Dying
from tests.unit.cluster.metadata import Metadata

from cordwood.broker.importing.steps import Import
from cordwood.broker.storage.cluster_witness import check_cluster, read_seen
from cordwood.broker.storage.import_note import (
    NOTE_FILE,
    Note,
    State,
    read_note,
    refuse_alone,
    refuse_other_import,
    refuse_unfinished,
    write_note,
)
from cordwood.broker.storage.storage import METADATA_FILE
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import CLUSTER_ID, IMPORT, broker_config_key, broker_epoch_key, storage_key
from cordwood.cluster.planner.importing import CannotImport
from cordwood.cluster.planner.registration import plan_cluster_id
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.registration import ImportUnderWay
from cordwood.cluster.stores.interface import Compare, Operation, OutcomeUnknown, Put, TxnResult
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.cluster.stores.sqlite import SqliteStore
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.identity import Identity
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.model.errors import StorageFailure

CLUSTER = "the-cluster-of-one-node"
OWNER = Identity(CLUSTER, 1, "the storage")
NOTE = Note("an-import", "shop", "etcd://somewhere:2379", 1)


async def a_single_node(path: Path, replicas: int = 1) -> dict[str, bytes]:
    """A directory as a broker left it that was alone; its metadata."""
    metadata = Metadata()
    await metadata.carry_out(plan_cluster_id(CLUSTER, 1))
    await metadata.register(*range(1, replicas + 1))
    await metadata.create(NewTopic("orders", 150, replicas, configs={"retention.ms": "1000"}))
    await metadata.create(NewTopic("__consumer_offsets", 1, 1), internal=True)
    extra = [
        Put(storage_key(2), b"of a worker"),
        Put(broker_config_key(2), b"{}"),
        Put(broker_epoch_key(2), b"7"),
        Put("of/a/newer/release", b"kept"),
    ]
    await metadata.store.txn((), extra)
    directory = DataDirectory(OsFilesystem(str(path)), str(path))
    directory.open(OWNER)
    directory.close()
    store = await SqliteStore.open(str(path / METADATA_FILE))
    rows = {item.key: item.value for item in (await metadata.store.list("")).items}
    for key, value in rows.items():
        await store.txn((), [Put(key, value)])
    await store.close()
    return rows


def an_import(path: Path, store: Any, life: list[int] | None = None, note: Note = NOTE) -> Import:
    filesystem: Any = OsFilesystem(str(path))
    if life is not None:
        filesystem, store = Dying(filesystem, life), Dying(store, life)
    note = read_note(OsFilesystem(str(path)), str(path)) or note
    return Import(DataDirectory(filesystem, str(path)), OWNER, store, Metadata().settings, note)


async def check_imported(path: Path, store: MemoryStore, rows: dict[str, bytes]) -> None:
    listing = await store.list("")
    found = {item.key: item.value for item in listing.items}
    assert found.pop(IMPORT) == NOTE.import_id.encode()
    expected = {key: value for key, value in rows.items() if not key.startswith("brokers/")}
    del expected[storage_key(2)], expected[broker_config_key(2)]
    assert found == {**expected, storage_key(1): b"the storage"}
    image = ClusterImage(1, Metadata().settings)
    image.load(listing)
    assert len(image.topics["orders"].partitions) == 150
    filesystem = OsFilesystem(str(path))
    note = read_note(filesystem, str(path))
    assert note == NOTE._replace(state=State.DONE)
    names = set(filesystem.list(str(path)))
    assert {name for name in names if "metadata.sqlite" in name} <= {
        f"imported-{METADATA_FILE}",
        f"imported-{METADATA_FILE}-witness",
    }
    assert f"imported-{METADATA_FILE}" in names
    refuse_unfinished(filesystem, str(path))
    with pytest.raises(StorageFailure, match="was imported into cluster shop"):
        refuse_alone(filesystem, str(path))
    # The store that the import wrote is not one that went back.
    await check_cluster(store, str(path), CLUSTER, read_seen(str(path)))


async def test_an_import_that_dies_at_any_point_goes_on(tmp_path: Path) -> None:
    point = 0
    while True:
        path, store = tmp_path / str(point), MemoryStore()
        path.mkdir()
        rows = await a_single_node(path)
        try:
            await an_import(path, store, [point]).run()
            break
        except Died:
            pass
        filesystem = OsFilesystem(str(path))
        if (path / NOTE_FILE).exists():
            for refuse in (refuse_alone, refuse_unfinished):
                with pytest.raises(StorageFailure, match="was begun, and has not ended"):
                    refuse(filesystem, str(path))
        else:
            assert (await store.list("")).items == []
        await an_import(path, store).run()
        await check_imported(path, store, rows)
        point += 1
    assert point > 8


@pytest.mark.parametrize("step", ["note", "reserve", "rows"])
async def test_an_import_that_is_not_committed_can_be_given_up(tmp_path: Path, step: str) -> None:
    rows, store = await a_single_node(tmp_path), MemoryStore()

    def die(done: str) -> None:
        if done == step:
            raise Died(done)

    with pytest.raises(Died):
        await an_import(tmp_path, store).run(die)
    await an_import(tmp_path, store).give_up()
    assert (await store.list("")).items == []
    refuse_alone(OsFilesystem(str(tmp_path)), str(tmp_path))
    await an_import(tmp_path, store).run()
    await check_imported(tmp_path, store, rows)
    with pytest.raises(StorageFailure, match="cannot be given up"):
        await an_import(tmp_path, store).give_up()


async def test_lost_answers_of_the_store_do_no_harm(tmp_path: Path) -> None:
    class Forgetful(MemoryStore):
        """A store whose every second answer is lost, before or after the transaction."""

        asked = 0

        async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
            self.asked += 1
            if self.asked % 4 == 1:
                raise OutcomeUnknown("the answer is lost, and so was the question")
            result = await super().txn(compares, operations)
            if self.asked % 4 == 3:
                raise OutcomeUnknown("the answer is lost")
            return result

    rows, store = await a_single_node(tmp_path), Forgetful()
    await an_import(tmp_path, store).run()
    await check_imported(tmp_path, store, rows)


async def test_a_cluster_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    await a_single_node(tmp_path)
    other = Metadata()
    await other.carry_out(plan_cluster_id("another", 1))
    before = await other.store.list("")
    with pytest.raises(CannotImport, match="is not empty: it has the id another"):
        await an_import(tmp_path, other.store).run()
    assert await other.store.list("") == before
    assert not (tmp_path / NOTE_FILE).exists()
    reserved = MemoryStore()
    await reserved.txn((), [Put(IMPORT, b"of another directory")])
    with pytest.raises(CannotImport, match="another directory is being imported"):
        await an_import(tmp_path, reserved).run()


async def test_an_older_copy_of_an_imported_directory_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    for name in ("imported", "copy"):
        (tmp_path / name).mkdir()
        await a_single_node(tmp_path / name)
    await an_import(tmp_path / "imported", store).run()
    with pytest.raises(CannotImport, match="is not empty"):
        await an_import(tmp_path / "copy", store, note=NOTE._replace(import_id="another")).run()
    assert not (tmp_path / "copy" / NOTE_FILE).exists()


async def test_partitions_with_other_replicas_are_refused(tmp_path: Path) -> None:
    await a_single_node(tmp_path, replicas=2)
    with pytest.raises(CannotImport, match="has the replicas"):
        await an_import(tmp_path, MemoryStore()).run()
    assert not (tmp_path / NOTE_FILE).exists()


async def test_nobody_names_a_cluster_while_an_import_is_under_way(tmp_path: Path) -> None:
    from cordwood.cluster.authority import Authority
    from cordwood.cluster.registration import BrokerRegistration

    store = MemoryStore()
    await store.txn((), [Put(IMPORT, b"under way")])
    registration = BrokerRegistration(store, Authority(store, 2), 10_000)
    with pytest.raises(ImportUnderWay):
        await registration.start(Metadata().settings, (), Metadata().ids.__next__)
    assert await store.get(CLUSTER_ID) is None


def test_a_damaged_note_is_refused(tmp_path: Path) -> None:
    filesystem = OsFilesystem(str(tmp_path))
    write_note(filesystem, str(tmp_path), NOTE)
    assert read_note(filesystem, str(tmp_path)) == NOTE
    data = (tmp_path / NOTE_FILE).read_bytes()
    (tmp_path / NOTE_FILE).write_bytes(data.replace(b"shop", b"ship"))
    with pytest.raises(StorageFailure, match="is damaged"):
        refuse_alone(filesystem, str(tmp_path))


async def test_a_directory_does_not_start_in_the_cluster_of_its_copy(tmp_path: Path) -> None:
    stores = {}
    for name in ("original", "copy"):
        path, store = tmp_path / name, MemoryStore()
        path.mkdir()
        await a_single_node(path)
        await an_import(path, store, note=NOTE._replace(import_id=name)).run()
        stores[name] = store
    original = str(tmp_path / "original")
    # Ids, revisions and changes of both clusters are the same: the witness does not tell them apart.
    await check_cluster(stores["copy"], original, CLUSTER, read_seen(original))
    note = refuse_unfinished(OsFilesystem(original), original)
    assert note is not None
    await refuse_other_import(stores["original"], original, note)
    with pytest.raises(StorageFailure, match="even if it came from a copy"):
        await refuse_other_import(stores["copy"], original, note)

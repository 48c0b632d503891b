"""A start that is refused leaves the disk as it was: no new directory or lock file, no lost mark of a clean stop."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.broker.several_directories import partitions_in, paths, written

from cordwood.broker.storage.storage import Storage
from cordwood.cluster.metadata.rows import STORAGE_IDS
from cordwood.cluster.stores.interface import Put
from cordwood.cluster.stores.sqlite import SqliteStore
from cordwood.embedded import Broker
from cordwood.log.directory.data_directory import WORKERS
from cordwood.model.errors import EnvironmentFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.segments.names import future_name
from cordwood.segments.set_aside import NOTE_FILE, Note, encode_note


class Refusal(NamedTuple):
    words: str
    prepare: Callable[[Path], None]
    directories: tuple[str, ...] = ("a", "b")
    node_id: int = 1
    store_opened: bool = False
    """Whether the metadata says that the start is to be refused: the store notes each time that it is opened."""


def nothing(path: Path) -> None:
    pass


def away(name: str) -> Callable[[Path], None]:
    def move(path: Path) -> None:
        shutil.move(path / name, path / "away")

    return move


def emptied(name: str) -> Callable[[Path], None]:
    def empty(path: Path) -> None:
        shutil.rmtree(path / name)
        (path / name).mkdir()

    return empty


def without_logs(path: Path) -> None:
    """The home lost its properties, and its logs were in a directory that is not given."""
    for directory in ("a", "b"):
        for log in (path / directory).glob("*/"):
            shutil.rmtree(log)
    for file in (path / "a").glob("*.properties"):
        file.unlink()


def emptied_without_logs(path: Path) -> None:
    without_logs(path)
    emptied("a")(path)


def a_copy(path: Path) -> None:
    shutil.copytree(path / "b", path / "c")


def a_link(path: Path) -> None:
    (path / "c").symlink_to(path / "b")


def another_broker(path: Path) -> None:
    Broker(data_dir=str(path / "c")).start().stop()


def exchanged(path: Path) -> None:
    """The second directories of two brokers are exchanged."""
    Broker(data_dir=paths(path, "c", "d")).start().stop()
    for old, new in (("b", "e"), ("d", "b"), ("e", "d")):
        shutil.move(path / old, path / new)


def two_logs(path: Path) -> None:
    """A partition of b, with its files, in a directory that is added."""
    name = f"orders-{min(partitions_in(path / 'b'))}"
    shutil.copytree(path / "b" / name, path / "c" / name)


def two_copies(path: Path) -> None:
    name = f"orders-{min(partitions_in(path / 'b'))}"
    shutil.rmtree(path / "b" / name)
    for directory, number in (("a", 1), ("b", 2)):
        copy = path / directory / future_name(name, f"{number:032x}")
        copy.mkdir()
        (copy / NOTE_FILE).write_bytes(encode_note(Note(TopicPartition.parse(name), None, "it moves", 0)))
    # One that would be removed.
    (path / "a" / future_name("orders-9", f"{3:032x}")).mkdir()


def damaged_store(path: Path) -> None:
    store = path / "a" / "metadata.sqlite"
    content = bytearray(store.read_bytes())
    content[4096:4196] = b"?" * 100
    store.write_bytes(content)


def lost_store(path: Path) -> None:
    for file in (path / "a").glob("metadata.sqlite*"):
        file.unlink()


def of_workers(path: Path) -> None:
    (path / "a" / WORKERS).mkdir()


def damaged_properties(path: Path) -> None:
    (path / "b" / "meta.properties").write_text("?")


def lost_properties(path: Path) -> None:
    (path / "b" / "meta.properties").unlink()


def lost_store_and_properties(path: Path) -> None:
    """The home has only the copy of its properties."""
    lost_store(path)
    (path / "a" / "meta.properties").unlink()


def replaced_by_others_files(path: Path) -> None:
    """Directories on the new disk are named like those of partitions."""
    emptied("b")(path)
    (path / "b" / "photos-2024").mkdir()
    (path / "b" / "orders-2024").mkdir()
    (path / "b" / "orders-2024" / "january.csv").touch()
    # The name of a partition that the metadata knows.
    (path / "b" / "orders-1").mkdir()


def replaced_by_the_disk_of_another_broker(path: Path) -> None:
    """It has a log of another topic with the same name, and no properties."""
    emptied("b")(path)
    with Broker(data_dir=str(path / "c"), settings={"num.partitions": 4}) as other:
        written(other.bootstrap_servers)
    shutil.move(path / "c" / "orders-0", path / "b" / "orders-0")
    shutil.rmtree(path / "c")


def of_a_cluster(path: Path) -> None:
    (path / "a" / "cluster-witness").write_text("")


REFUSALS = {
    "a directory is gone": Refusal("/b .* is missing or was emptied", away("b")),
    "a directory is not given": Refusal("/b .* is missing or was emptied", nothing, ("a",)),
    "a directory is not given, and another is new": Refusal("/b .* is missing", nothing, ("a", "c")),
    "a directory was emptied": Refusal("/b .* is missing or was emptied", emptied("b")),
    "the home is gone": Refusal("with the broker's metadata", away("a")),
    "the home was emptied": Refusal("with the broker's metadata", emptied("a")),
    "the home has no properties and knows topics": Refusal(
        "with the broker's metadata", without_logs, store_opened=True
    ),
    "the home was emptied, and the others have no logs": Refusal("with the broker's metadata", emptied_without_logs),
    "the home is not given": Refusal("with the broker's metadata", nothing, ("b", "c")),
    "a directory is a copy": Refusal("is a copy of", a_copy, ("a", "b", "c")),
    "a directory is another broker's": Refusal(
        "have been data directories on their own", another_broker, ("a", "b", "c")
    ),
    "two brokers have each other's directory": Refusal(
        "/b belongs to the broker whose metadata was in .*/c", exchanged
    ),
    "a directory lies in another": Refusal("which lies in", nothing, ("a", "b", "b/c")),
    "a directory is named twice": Refusal("twice", a_link, ("a", "b", "c")),
    "the node has another number": Refusal("has the data of node 1, not of node 7", nothing, node_id=7),
    "two directories have one partition": Refusal(
        "are logs of the same partition", two_logs, ("a", "b", "c"), store_opened=True
    ),
    "two copies could be the log": Refusal("and 2 copies", two_copies, ("a", "b", "c"), store_opened=True),
    "the store is damaged": Refusal("metadata.sqlite is damaged", damaged_store, ("a", "b", "c")),
    "the store is gone": Refusal("the metadata store .* is gone", lost_store, ("a", "b", "c")),
    "workers have the partitions": Refusal("in the homes of workers", of_workers, ("a", "b", "c")),
    "the properties are damaged": Refusal("meta.properties is damaged", damaged_properties, ("a", "b", "c")),
    "the properties are gone": Refusal(
        r"/b has the logs of orders-., orders-., and no meta.properties, .* not lost", lost_properties
    ),
    "the home lost its store and its properties": Refusal(
        "the metadata store .* is gone", lost_store_and_properties, ("a", "b", "c")
    ),
    "a replaced disk has directories of others": Refusal("/b .* is missing or was emptied", replaced_by_others_files),
    "a replaced disk has logs of another broker": Refusal(
        "/b .* is missing or was emptied", replaced_by_the_disk_of_another_broker
    ),
    "the broker is part of a cluster": Refusal("--cluster and --store", of_a_cluster, ("a", "b", "c")),
}


def tree(path: Path, *, but_the_store: bool) -> dict[str, bytes | None]:
    return {
        str(each.relative_to(path)): each.read_bytes() if each.is_file() else None
        for each in path.rglob("*")
        if not (but_the_store and each.name.startswith("metadata.sqlite"))
    }


def open_descriptors() -> dict[str, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
    return found


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_a_refused_start_changes_nothing_and_keeps_no_file_open(tmp_path: Path, refusal: Refusal) -> None:
    with Broker(data_dir=paths(tmp_path, "a", "b"), settings={"num.partitions": 4}) as first:
        written(first.bootstrap_servers)
    refusal.prepare(tmp_path)
    before = tree(tmp_path, but_the_store=refusal.store_opened)
    settings: dict[str, str | int] = {"node.id": refusal.node_id}
    with pytest.raises(EnvironmentFailure, match=refusal.words):
        Broker(data_dir=paths(tmp_path, *refusal.directories), settings=settings).start()
    assert tree(tmp_path, but_the_store=refusal.store_opened) == before
    kept = {path for path in open_descriptors().values() if path.startswith(str(tmp_path))}
    assert not kept


def test_a_start_whose_address_is_taken_makes_no_directory(tmp_path: Path) -> None:
    with Broker(data_dir=paths(tmp_path, "a", "b")) as first:
        taken = first.bootstrap_servers
        Broker(data_dir=paths(tmp_path, "c", "d")).start().stop()
        before = tree(tmp_path, but_the_store=True)
        with pytest.raises(OSError, match="in use"):
            Broker(data_dir=paths(tmp_path, "c", "d", "e"), settings={"listeners": f"PLAINTEXT://{taken}"}).start()
        assert tree(tmp_path, but_the_store=True).keys() == before.keys()


async def test_the_store_of_a_cluster_is_not_changed_by_a_broker_alone_that_is_refused_it(tmp_path: Path) -> None:
    store = await SqliteStore.open(f"{tmp_path}/metadata.sqlite")
    await store.txn((), [Put(f"{STORAGE_IDS}1", b"storage")])
    await store.close()
    before = tree(tmp_path, but_the_store=False)
    with pytest.raises(EnvironmentFailure, match="has the metadata of a cluster, and no records"):
        await Storage.open(BrokerSettings.from_texts({"log.dirs": str(tmp_path)}))
    after = tree(tmp_path, but_the_store=False)
    # The lock keeps a second process from the store while this one reads it.
    assert after.pop(".lock") == b""
    assert after == before

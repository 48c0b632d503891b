"""What only the store on disk promises: durability, exclusiveness, one fsync for many, and honest failures."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.cluster.stores.interface import Delete, Event, Listing, OutcomeUnknown, Put, StoreFailure
from cordwood.cluster.stores.sqlite import SqliteStore

FILE = "metadata.sqlite"


async def test_everything_is_there_again_after_closing_and_opening(tmp_path: Path) -> None:
    path = str(tmp_path / FILE)
    store = await SqliteStore.open(path)
    await store.txn((), [Put("a", b"1"), Put("b", b"1")])
    await store.txn((), [Delete("b")])
    before = await store.list("")
    await store.close()
    store = await SqliteStore.open(path)
    assert await store.list("") == before
    assert (await store.txn((), [Put("a", b"2")])).revision == before.revision + 1
    await store.close()


def modes_in(directory: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in directory.iterdir() if "reserve" not in file.name}


async def test_only_the_owner_may_read_the_keys_of_brokers(tmp_path: Path) -> None:
    path = str(tmp_path / FILE)
    store = await SqliteStore.open(path)
    await store.txn((), [Put("brokers/1", b"a key")])
    while not (tmp_path / f"{FILE}-witness").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert modes_in(tmp_path) == dict.fromkeys((FILE, f"{FILE}-wal", f"{FILE}-witness"), 0o600)
    await store.close()


async def test_the_files_of_an_earlier_release_are_taken_from_other_users(tmp_path: Path) -> None:
    path, copy = tmp_path / FILE, tmp_path / "copy"
    store = await SqliteStore.open(str(path))
    await store.txn((), [Put("brokers/1", b"a key")])
    while not (tmp_path / f"{FILE}-witness").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    # Copied while the store is open, so that its write-ahead log is there, too, as after a kill.
    copy.mkdir()
    for name in modes_in(tmp_path).keys() - {"copy"}:
        (copy / name).write_bytes((tmp_path / name).read_bytes())
        (copy / name).chmod(0o644)
    await store.close()
    store = await SqliteStore.open(str(copy / FILE))
    assert modes_in(copy) == dict.fromkeys((FILE, f"{FILE}-wal", f"{FILE}-witness"), 0o600)
    assert [item.key for item in (await store.list("")).items] == ["brokers/1"]
    await store.close()


async def test_the_revision_does_not_go_back_when_the_last_change_was_a_deletion_and_is_compacted(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / FILE)
    store = await SqliteStore.open(path)
    await store.txn((), [Put("a", b"1")])
    await store.txn((), [Delete("a")])
    await store.compact(3)
    await store.close()
    store = await SqliteStore.open(path)
    assert await store.list("") == (3, [])
    await store.close()


async def test_a_watch_can_start_before_the_store_was_opened(tmp_path: Path) -> None:
    path = str(tmp_path / FILE)
    store = await SqliteStore.open(path)
    await store.txn((), [Put("a", b"1")])
    await store.txn((), [Put("a", b"2"), Put("b", b"2")])
    await store.close()
    store = await SqliteStore.open(path)
    watch = store.watch("", 2)
    assert (await anext(watch)).events == [Event("a", b"1", 2, 2), Event("a", b"2", 2, 3), Event("b", b"2", 3, 3)]
    await store.txn((), [Put("c", b"3")])
    assert (await anext(watch)).events == [Event("c", b"3", 4, 4)]
    await store.close()


async def test_what_was_asked_before_closing_is_done_before_it_is_closed(tmp_path: Path) -> None:
    path = str(tmp_path / FILE)
    store = await SqliteStore.open(path)
    asked = [asyncio.ensure_future(store.txn((), [Put(f"k{number}", b"")])) for number in range(500)]
    await asyncio.sleep(0)
    await store.close()
    assert all([(await each).succeeded for each in asked])
    store = await SqliteStore.open(path)
    assert len((await store.list("")).items) == 500
    await store.close()


async def test_a_caller_that_gave_up_does_not_disturb_the_others(tmp_path: Path) -> None:
    store = await SqliteStore.open(str(tmp_path / FILE))
    asked = [asyncio.ensure_future(store.txn((), [Put(f"k{number}", b"")])) for number in range(3)]
    await asyncio.sleep(0)
    asked[1].cancel()
    assert (await asked[0]).revision == 2
    assert (await asked[2]).revision == 4
    await store.close()


def open_files(directory: Path) -> list[str]:
    """The files of a directory that this process has open."""
    paths = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    return [path for path in paths if path.startswith(str(directory))]


async def test_a_second_process_cannot_open_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / FILE)
    store = await SqliteStore.open(path)
    with pytest.raises(StoreFailure, match="in use by another process") as kept:
        await SqliteStore.open(path)
    assert (await store.txn((), [Put("a", b"1")])).succeeded
    await store.close()
    assert open_files(tmp_path) == [], kept  # also while somebody looks at the error


async def test_a_file_that_is_not_a_store_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(b"something else, and long enough to be looked at" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreFailure, match="not a database"):
        await SqliteStore.open(str(path))
    assert path.read_bytes() == before


async def test_a_store_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / FILE)
    await (await SqliteStore.open(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=4")
    connection.close()
    with pytest.raises(StoreFailure, match="format 4"):
        await SqliteStore.open(path)


async def test_a_store_without_its_state_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / FILE)
    await (await SqliteStore.open(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM state")
    connection.close()
    with pytest.raises(StoreFailure, match="damaged"):
        await SqliteStore.open(path)


async def test_a_full_disk_refuses_writes_keeps_reading_and_recovers(tmp_path: Path) -> None:
    store = await SqliteStore.open(str(tmp_path / FILE))
    await store.txn((), [Put("a", b"1")])
    await store._ask(lambda database: (database.connection.execute("PRAGMA max_page_count=8").fetchone(), None))
    await store.txn((), [Put("b", bytes(500_000))])  # the reserve takes this much
    with pytest.raises(StoreFailure, match="no space left") as refused:
        await store.txn((), [Put("c", bytes(1_000_000))])
    assert not isinstance(refused.value, OutcomeUnknown)
    item = await store.get("a")
    assert item is not None
    assert item.value == b"1"
    assert (await store.txn((), [Put("a", b"2")])).revision == 4
    await store.close()


@pytest.mark.parametrize("odd", ["a directory", "a link to nowhere", "a link to a file", "a pipe"])
async def test_something_else_in_the_place_of_the_reserve_stays_and_does_no_harm(tmp_path: Path, odd: str) -> None:
    path, reserve, other = str(tmp_path / FILE), tmp_path / f"{FILE}-reserve", tmp_path / "other"
    await (await SqliteStore.open(path)).close()
    reserve.unlink()
    other.write_bytes(b"not ours")
    if odd == "a directory":
        reserve.mkdir()
    elif odd == "a pipe":
        os.mkfifo(reserve)
    else:
        reserve.symlink_to(other if odd == "a link to a file" else tmp_path / "gone" / "file")
    before = reserve.lstat()
    store = await SqliteStore.open(path)
    await store._ask(lambda database: (database.connection.execute("PRAGMA max_page_count=8").fetchone(), None))
    with pytest.raises(StoreFailure, match="no space left"):
        await store.txn((), [Put("a", bytes(1_500_000))])
    assert (await store.txn((), [Put("a", b"1")])).succeeded
    await store.close()
    assert (reserve.lstat().st_ino, reserve.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert other.read_bytes() == b"not ours"


async def test_after_a_failure_of_the_file_nothing_more_is_promised(tmp_path: Path) -> None:
    store = await SqliteStore.open(str(tmp_path / FILE))
    await store.txn((), [Put("a", b"1")])
    watch = store.watch("", 3)
    waiting = asyncio.ensure_future(anext(watch))
    await store._ask(lambda database: (database.connection.execute("DROP TABLE history").fetchone(), None))
    with pytest.raises(StoreFailure):
        await store.txn((), [Put("a", b"2")])
    with pytest.raises(StoreFailure):
        await store.get("a")
    with pytest.raises(StoreFailure):
        await waiting
    await store.close()


WRITER = """
import asyncio, sys
from cordwood.cluster.stores.interface import Put
from cordwood.cluster.stores.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(sys.argv[1])
    number = len((await store.list("")).items) // 3
    while True:
        await store.txn((), [Put(f"{number}/{part}", b"x" * 500) for part in "abc"])
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


async def listing_of(path: str) -> Listing:
    store = await SqliteStore.open(path)
    listing = await store.list("")
    await store.close()
    return listing


def test_kill_9_loses_nothing_that_was_acknowledged_and_halves_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / FILE)
    acknowledged = -1
    for acks in (1, 7, 40):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(acks):
                acknowledged = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
        listing = asyncio.run(listing_of(path))
        numbers = [int(item.key.split("/")[0]) for item in listing.items]
        assert set(range(acknowledged + 1)) <= set(numbers)
        assert all(numbers.count(number) == 3 for number in set(numbers))
        assert listing.revision == len(set(numbers)) + 1

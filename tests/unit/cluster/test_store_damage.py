"""One bit flipped anywhere in the metadata store: it is as it was, or it is refused, never something else."""

import asyncio
import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.deadline import eventually

from cordwood.cluster.stores import sqlite
from cordwood.cluster.stores.integrity import best_image, read_image, verify
from cordwood.cluster.stores.interface import Delete, Listing, Put, StoreFailure
from cordwood.cluster.stores.opening_checks import check_store
from cordwood.cluster.stores.sqlite import SqliteStore
from cordwood.cluster.stores.wal import DamagedStore
from cordwood.cluster.stores.witness import read_witness

FILE = "metadata.sqlite"
KILLED, STOPPED = "killed", "stopped"
SAMPLES = 40


async def filled(path: str, *, topics: int = 12) -> SqliteStore:
    store = await SqliteStore.open(path)
    for number in range(topics):
        await store.txn(
            (), [Put(f"topics/{number}", b"x" * 40 * number), Put(f"topic_names/t{number}", b"%d" % number)]
        )
        await store.txn((), [Delete(f"topics/{number - 3}"), Put("counter", b"%d" % number)])
    return store


async def contents(path: Path) -> Listing:
    store = await SqliteStore.open(str(path))
    try:
        return await store.list("")
    finally:
        await store.close()


def copy(source: Path, target: Path) -> Path:
    target.mkdir()
    for file in source.iterdir():
        shutil.copy(file, target / file.name)
    return target / FILE


@asynccontextmanager
async def left_by(how: str, tmp_path: Path) -> AsyncIterator[tuple[Path, Listing]]:
    """The files of a store whose process was killed or stopped, after its witness was written; and its content."""
    live = tmp_path / "live"
    live.mkdir()
    store = await filled(str(live / FILE))
    expected = await store.list("")

    def settled() -> bool:
        seen = read_witness(str(live / FILE))
        return seen is not None and seen.revision >= expected.revision

    await asyncio.to_thread(eventually, settled, what="the witness")
    if how == STOPPED:
        await store.close()
        yield copy(live, tmp_path / "copy"), expected
    else:
        yield copy(live, tmp_path / "copy"), expected
        await store.close()


def flips(data: bytes, chance: random.Random) -> list[int]:
    """Bits to flip: in every byte of the headers, and in a sample of the others that are not zero."""
    used = [position for position in range(len(data)) if data[position]]
    positions = list(range(100 if data.startswith(b"SQLite") else 40)) + chance.sample(used, min(SAMPLES, len(used)))
    return [position * 8 + chance.randrange(8) for position in positions]


@pytest.mark.parametrize("suffix", ["", "-wal", "-witness"])
@pytest.mark.parametrize("how", [KILLED, STOPPED])
async def test_a_flipped_bit_is_harmless_or_refused(tmp_path: Path, how: str, suffix: str) -> None:
    async with left_by(how, tmp_path) as (path, expected):
        file = path.with_name(FILE + suffix)
        if not file.exists():
            return
        whole = file.read_bytes()
        opened = 0
        for bit in flips(whole, random.Random(5)):
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            file.write_bytes(changed)
            if refusal(path) is not None:
                continue
            state = verify(read_image(str(path)), str(path))
            assert state is not None
            assert state.revision == expected.revision, f"bit {bit}"
            if opened < 5:
                # SQLite sees what the check saw.
                opened += 1
                trial = copy(path.parent, path.parent.with_name(f"trial-{bit}"))
                assert await contents(trial) == expected
                shutil.rmtree(trial.parent)
        file.write_bytes(whole)
        assert await contents(path) == expected


def refusal(path: Path) -> str | None:
    try:
        check_store(str(path))
    except StoreFailure as failure:
        return str(failure)
    return None


@pytest.mark.parametrize("how", [KILLED, STOPPED])
async def test_what_is_whole_in_a_damaged_store_is_found(tmp_path: Path, how: str) -> None:
    """The log was copied into the file: losing the log costs nothing."""
    async with left_by(how, tmp_path) as (path, expected):
        wal = path.with_name(FILE + "-wal")
        if wal.exists():
            changed = bytearray(wal.read_bytes())
            changed[20] ^= 1
            wal.write_bytes(changed)
            assert "cordwood recover metadata" in (refusal(path) or "")
        best = best_image(str(path))
        assert best is not None
        assert best[1].revision == expected.revision


@pytest.mark.parametrize("keep", [lambda size: size - 1, lambda size: size - 4000, lambda size: size - 4121])
async def test_the_torn_last_transaction_of_a_power_cut_is_left_out_and_the_store_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: Callable[[int], int]
) -> None:
    """Nobody was told of it. The witness was not written either."""
    monkeypatch.setattr(sqlite, "_SETTLE_AFTER_S", 1e6)
    (tmp_path / "live").mkdir()
    store = await filled(str(tmp_path / "live" / FILE), topics=2)
    before = await store.list("")
    await store.txn((), [Put("torn", b"?")])
    path = copy(tmp_path / "live", tmp_path / "copy")
    await store.close()
    wal = path.with_name(FILE + "-wal")
    frame = 4096 + 24
    salts = wal.read_bytes()[16:24]
    frames = (len(wal.read_bytes()) - 32) // frame
    live = [n for n in range(frames) if wal.read_bytes()[32 + n * frame + 8 :][:8] == salts]
    data = wal.read_bytes()
    end = 32 + (live[-1] + 1) * frame
    # The end of the last frame did not get to the disk: what was there before, or zeros.
    wal.write_bytes(data[: keep(end)] + bytes(end - keep(end)) + data[end:])
    assert await contents(path) == before


async def test_a_bad_frame_that_later_transactions_follow_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without a witness: the frame was fsynced, or the transactions behind it would not be there."""
    monkeypatch.setattr(sqlite, "_SETTLE_AFTER_S", 1e6)
    (tmp_path / "live").mkdir()
    store = await filled(str(tmp_path / "live" / FILE), topics=6)
    path = copy(tmp_path / "live", tmp_path / "copy")
    await store.close()
    wal = path.with_name(FILE + "-wal")
    data = bytearray(wal.read_bytes())
    data[32 + 24 + 100] ^= 1
    wal.write_bytes(data)
    with pytest.raises(DamagedStore, match="later transactions follow"):
        await contents(path)
    assert wal.read_bytes() == data, "a refusal changes nothing"


async def test_a_store_of_the_format_before_gets_checksums(tmp_path: Path) -> None:
    path = tmp_path / FILE
    connection = sqlite3.connect(path)
    connection.executescript(
        """
        CREATE TABLE history (key TEXT NOT NULL, mod_revision INTEGER NOT NULL, create_revision INTEGER NOT NULL,
            value BLOB, PRIMARY KEY (key, mod_revision)) WITHOUT ROWID;
        CREATE TABLE state (revision INTEGER NOT NULL, compact_revision INTEGER NOT NULL);
        CREATE TABLE reserve (filler BLOB);
        INSERT INTO state VALUES (7, 2);
        INSERT INTO history VALUES ('a', 5, 3, x'31'), ('b', 7, 0, NULL);
        PRAGMA user_version=1;
        """
    )
    connection.close()
    for _ in range(2):
        listing = await contents(path)
        assert (listing.revision, [item.key for item in listing.items]) == (7, ["a"])
    assert verify(read_image(str(path)), str(path)) is not None


def test_the_log_is_in_the_file_soon_after_a_change(tmp_path: Path) -> None:
    async def story() -> None:
        store = await filled(str(tmp_path / FILE))

        def in_the_file() -> bool:
            state = verify(read_image(str(tmp_path / FILE), without_wal=True), FILE)
            return state is not None and state.revision == 25

        await asyncio.to_thread(eventually, in_the_file, what="the change is in the file")
        await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
async def test_a_store_whose_file_lost_its_end_is_as_it_was_or_refused(tmp_path: Path, kept: float) -> None:
    """SQLite opens such a file, and finds it malformed when it first copies the log into it."""
    async with left_by(KILLED, tmp_path) as (path, expected):
        with path.open("r+b") as file:
            file.truncate(int(path.stat().st_size * kept))
        if refusal(path) is not None:
            best = best_image(str(path))
            assert best is not None
            assert best[1].revision == expected.revision
            return
        store = await SqliteStore.open(str(path))
        for _ in range(4):
            await store.txn((), [Put("zz", b"x")])
            await asyncio.sleep(2 * sqlite._SETTLE_AFTER_S)
        await store.close()
        assert list((await contents(path)).items)[:-1] == list(expected.items)


async def test_changes_of_a_life_too_short_to_settle_them_are_settled_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a pause of 0.2 s for the store, and killed before 5 s: they would be in its log alone for ever."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    store = await filled(str(first / FILE))
    before = copy(first, second)
    await store.close()
    (second / f"{FILE}-witness").unlink(missing_ok=True)
    monkeypatch.setattr(sqlite, "_SETTLE_AT_LEAST_EVERY_S", 3600.0)
    store = await SqliteStore.open(str(before))
    while read_witness(str(before)) is None:
        await store.txn((), [Put("counter", b"x")])
    await store.close()

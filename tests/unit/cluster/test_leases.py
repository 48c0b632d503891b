"""Leases, over every store: keys that vanish when nobody renews them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import pytest

from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.image import ClusterImage
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.rows import Endpoint
from cordwood.cluster.stores.interface import Delete, Event, LeaseEnded, MetadataStore, Put
from cordwood.cluster.stores.leases import PAUSE_MS, Leases
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.cluster.stores.sqlite import SqliteStore
from cordwood.model.broker_settings import BrokerSettings


class OpenStore(Protocol):
    def __call__(self, *, boot_ms: Callable[[], int] = ...) -> AbstractAsyncContextManager[MetadataStore]: ...


class BootClock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


async def keys(store: MetadataStore, revision: int = 0) -> list[tuple[str, int]]:
    return [(item.key, item.lease) for item in (await store.list("", revision)).items]


async def take(watch: AsyncIterator[Sequence[Event]], count: int) -> list[Event]:
    events: list[Event] = []
    while len(events) < count:
        events += await anext(watch)
    return events


async def test_a_key_says_which_lease_it_belongs_to(open_store: OpenStore) -> None:
    async with open_store() as store:
        one, two = await store.grant(60_000), await store.grant(60_000)
        assert 0 < one != two > 0
        first = (await store.txn((), [Put("a", b"1", one), Put("b", b"1")])).revision
        await store.txn((), [Put("a", b"2", two), Put("b", b"2", one)])
        assert await keys(store) == [("a", two), ("b", one)]
        assert await keys(store, first) == [("a", one), ("b", 0)]
        item = await store.get("a")
        assert item is not None
        assert item.lease == two
        await store.txn((), [Put("a", b"3")])
        assert await keys(store) == [("a", 0), ("b", one)]


async def test_the_keys_of_a_revoked_lease_vanish_in_one_revision(open_store: OpenStore) -> None:
    async with open_store() as store:
        lease, other = await store.grant(60_000), await store.grant(60_000)
        await store.txn((), [Put("a", b"", lease), Put("b", b"", lease), Put("c", b"", lease), Put("d", b"", other)])
        before = (await store.txn((), [Put("c", b""), Delete("b"), Put("kept", b"")])).revision
        await store.txn((), [Put("b", b"", lease)])
        watch = store.watch("", before + 2)
        await store.revoke(lease)
        assert await take(watch, 2) == [Event("a", None, 0, before + 2), Event("b", None, 0, before + 2)]
        assert await keys(store) == [("c", 0), ("d", other), ("kept", 0)]
        assert (await store.list("", before + 1)).revision == before + 1
        await store.revoke(lease)
        assert (await store.list("")).revision == before + 2


async def test_a_lease_that_ended_can_be_neither_renewed_nor_used(open_store: OpenStore) -> None:
    async with open_store() as store:
        lease = await store.grant(60_000)
        await store.revoke(lease)
        with pytest.raises(LeaseEnded):
            await store.renew(lease)
        with pytest.raises(LeaseEnded):
            await store.txn((), [Put("other", b""), Put("a", b"", lease)])
        assert await keys(store) == []


async def test_a_lease_without_keys_ends_without_a_revision(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.revoke(await store.grant(60_000))
        assert (await store.list("")).revision == 1


async def test_a_lease_expires_when_it_is_not_renewed_in_time(open_store: OpenStore) -> None:
    clock = BootClock()
    async with open_store(boot_ms=clock) as store:
        lease = await store.grant(1000)
        await store.txn((), [Put("a", b"", lease)])
        clock.ms = 900
        await store.renew(lease)
        clock.ms = 1899
        assert await keys(store) == [("a", lease)]
        clock.ms = 1900
        await store.txn((), [Put("b", b"")])
        assert await keys(store) == [("b", 0)]
        assert (await store.list("")).revision == 4
        with pytest.raises(LeaseEnded):
            await store.renew(lease)


async def test_a_lease_expires_though_nobody_calls_the_store(open_store: OpenStore) -> None:
    async with open_store() as store:
        ttl_ms, revision = 30, 0
        while not revision:
            lease = await store.grant(ttl_ms)
            try:
                revision = (await store.txn((), [Put("a", b"", lease)])).revision
            except LeaseEnded:
                ttl_ms *= 2
        assert await take(store.watch("", revision + 1), 1) == [Event("a", None, 0, revision + 1)]


def test_a_store_that_was_stopped_with_its_clients_begins_their_leases_anew() -> None:
    forgiving, strict = Leases(forgives_pauses=True), Leases()
    for leases in (forgiving, strict):
        leases.grant(1000, 0)
    assert strict.due(1000 + PAUSE_MS) == [1]
    assert forgiving.due(1000 + PAUSE_MS) == []
    assert forgiving.due(1999 + PAUSE_MS) == []
    assert forgiving.due(2000 + PAUSE_MS) == [1]


async def test_keys_of_a_former_life_vanish_in_one_revision_when_sqlite_opens(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.sqlite")
    store = await SqliteStore.open(path)
    lease = await store.grant(60_000)
    await store.txn((), [Put("a", b"", lease), Put("b", b"", lease), Put("c", b"", lease)])
    revision = (await store.txn((), [Put("c", b""), Put("d", b"")])).revision
    await store.close()
    store = await SqliteStore.open(path)
    assert await store.list("") == (revision + 1, [*(await store.list("c")).items, *(await store.list("d")).items])
    assert await take(store.watch("", revision + 1), 2) == [
        Event("a", None, 0, revision + 1),
        Event("b", None, 0, revision + 1),
    ]
    assert await store.grant(60_000) > lease
    await store.close()
    store = await SqliteStore.open(path)
    assert (await store.list("")).revision == revision + 1
    await store.close()


async def test_keys_of_a_former_life_vanish_when_memory_is_opened_again() -> None:
    store = MemoryStore()
    lease = await store.grant(60_000)
    revision = (await store.txn((), [Put("a", b"", lease), Put("b", b"")])).revision
    store = store.reopened()
    assert await keys(store) == [("b", 0)]
    assert (await store.list("")).revision == revision + 1
    assert await store.grant(60_000) > lease


def registered(store: MetadataStore, lease_ms: int = 60_000) -> MetadataWriter:
    image = ClusterImage(1, BrokerSettings.from_texts({}))
    return MetadataWriter(store, ImageFollower(store, image), lease_ms=lease_ms)


ENDPOINTS = [Endpoint("PLAINTEXT", "127.0.0.1", 9092)]


async def test_a_broker_is_registered_under_a_lease_and_gone_when_it_ends(open_store: OpenStore) -> None:
    clock = BootClock()
    async with open_store(boot_ms=clock) as store:
        writer = registered(store)
        await writer.start(ENDPOINTS)
        row = await store.get("brokers/1")
        assert row is not None
        assert row.lease > 0
        await writer.stop()
        clock.ms = 60_000
        assert await store.get("brokers/1") is None
        epoch = await store.get("broker_epoch/1")
        assert epoch is not None
        assert (epoch.value, epoch.lease) == (b"1", 0)


async def test_a_broker_renews_its_lease(open_store: OpenStore) -> None:
    async with open_store() as store:
        renewed = asyncio.Event()
        renew = store.renew

        async def noted(lease: int) -> None:
            await renew(lease)
            renewed.set()

        store.renew = noted  # type: ignore[method-assign]
        writer = registered(store, lease_ms=3000)
        await writer.start(ENDPOINTS)
        await renewed.wait()
        await writer.stop()


async def test_a_broker_whose_lease_ended_comes_back_in_its_epoch(open_store: OpenStore) -> None:
    async with open_store() as store:
        writer = registered(store, lease_ms=3000)
        await writer.start(ENDPOINTS)
        before = await store.get("brokers/1")
        assert before is not None
        await store.revoke(before.lease)
        back = (await take(store.watch("brokers/", before.mod_revision + 1), 2))[-1]
        await writer.follower.reach(back.mod_revision)
        after = await store.get("brokers/1")
        assert after is not None
        assert after.value == before.value
        assert after.lease != before.lease
        assert writer.image.brokers[1].epoch == writer.broker_epoch == 1
        await writer.stop()


async def test_a_broker_whose_successor_registered_does_not_come_back(open_store: OpenStore) -> None:
    async with open_store() as store:
        old, new = registered(store, lease_ms=3000), registered(store)
        await old.start(ENDPOINTS)
        row = await store.get("brokers/1")
        assert row is not None
        await new.start([Endpoint("PLAINTEXT", "elsewhere", 9092)])
        await store.revoke(row.lease)
        assert old.registration.renewing is not None
        await old.registration.renewing
        await new.follower.reach((await store.list("none")).revision)
        assert new.image.brokers[1].endpoints[0].host == "elsewhere"
        await old.stop()
        await new.stop()

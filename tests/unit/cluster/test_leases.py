"""Leases, over every store: keys that vanish when nobody renews them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.unit.cluster.kinds import WITHOUT_ETCD

from cordwood.cluster.authority import Fenced
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import Endpoint, decode_broker, encode_broker
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.registration import ALONE, LeaseHolder, NodeIdTaken, Standing
from cordwood.cluster.stores.interface import Delete, Event, LeaseEnded, MetadataStore, Put, TxnResult, WatchStep
from cordwood.cluster.stores.leases import PAUSE_MS, Leases, monotonic_ms
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.cluster.stores.sqlite import SqliteStore
from cordwood.model.settings.broker_settings import BrokerSettings


class OpenStore(Protocol):
    def __call__(self, *, boot_ms: Callable[[], int] = ...) -> AbstractAsyncContextManager[MetadataStore]: ...


class BootClock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


async def keys(store: MetadataStore, revision: int = 0) -> list[tuple[str, int]]:
    return [(item.key, item.lease) for item in (await store.list("", revision)).items]


async def take(watch: AsyncIterator[WatchStep], count: int) -> list[Event]:
    events: list[Event] = []
    while len(events) < count:
        events += (await anext(watch)).events
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


@WITHOUT_ETCD
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


@WITHOUT_ETCD
async def test_a_lease_whose_time_is_over_takes_no_key_and_no_renewal(open_store: OpenStore) -> None:
    clock = BootClock()
    async with open_store(boot_ms=clock) as store:
        for late in ("put", "renew"):
            lease = await store.grant(1000)
            clock.ms += 1000
            with pytest.raises(LeaseEnded):
                await (store.txn((), [Put("a", b"", lease)]) if late == "put" else store.renew(lease))
        assert await keys(store) == []


@WITHOUT_ETCD
async def test_a_key_that_is_put_behind_the_end_of_its_lease_is_refused(open_store: OpenStore) -> None:
    async with open_store() as store:
        lease = await store.grant(60_000)
        _, put = await asyncio.gather(
            store.revoke(lease), store.txn((), [Put("a", b"", lease)]), return_exceptions=True
        )
        assert isinstance(put, LeaseEnded)
        assert await keys(store) == []


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


def registered(
    store: MetadataStore,
    lease_ms: int = 60_000,
    standing: Standing = ALONE,
    holder: LeaseHolder | None = None,
    boot_ms: Callable[[], int] = monotonic_ms,
) -> MetadataWriter:
    image = ClusterImage(1, BrokerSettings.from_texts({}))
    follower = ImageFollower(store, image)
    return MetadataWriter(store, follower, lease_ms=lease_ms, standing=standing, holder=holder, boot_ms=boot_ms)


ENDPOINTS = [Endpoint("PLAINTEXT", "127.0.0.1", 9092)]


@WITHOUT_ETCD
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


IN_A_CLUSTER = Standing("storage", clustered=True)


async def test_what_a_broker_says_while_it_registers_again_is_said_after_that(open_store: OpenStore) -> None:
    async with open_store() as store:
        writer = registered(store, lease_ms=3000, standing=IN_A_CLUSTER)
        await writer.start(ENDPOINTS)
        before = await store.get("brokers/1")
        assert before is not None
        under_way, may_go_on = asyncio.Event(), asyncio.Event()
        txn = store.txn

        async def held(*transaction: Any) -> TxnResult:
            if any(isinstance(each, Put) and each.key == "brokers/1" for each in transaction[1]):
                under_way.set()
                await may_go_on.wait()
            return await txn(*transaction)

        store.txn = held  # type: ignore[assignment, method-assign]
        await store.revoke(before.lease)
        await under_way.wait()
        await writer.registration.say(draining=False)
        may_go_on.set()
        events = await take(store.watch("brokers/", before.mod_revision + 1), 3)
        gone, registered_again, said = (event.value for event in events)
        assert gone is None
        assert registered_again is not None
        assert decode_broker("brokers/1", registered_again).starting
        assert said is not None
        assert not decode_broker("brokers/1", said).starting, "the fence of a broker that starts is never lifted"
        await writer.stop()


async def test_a_row_that_a_late_write_changed_back_is_corrected(open_store: OpenStore) -> None:
    async with open_store() as store:
        writer = registered(store, lease_ms=3000, standing=IN_A_CLUSTER)
        await writer.start(ENDPOINTS)
        assert await writer.take_part(timeout_s=60)
        said = await store.get("brokers/1")
        assert said is not None
        late = decode_broker("brokers/1", said.value)._replace(disk_full=True, damaged=("orders/0",))
        await store.txn((), [Put("brokers/1", encode_broker(late), said.lease)])
        (_, corrected) = await take(store.watch("brokers/", said.mod_revision + 1), 2)
        assert corrected.value == said.value
        await writer.stop()


class Notes:
    """What a broker hears of its lease."""

    def __init__(self) -> None:
        self.registrations: list[tuple[int, int]] = []
        self.renewals: list[int] = []
        self.renewed = asyncio.Event()
        self.registered_again = asyncio.Event()
        self.keys: list[int] = []

    def registered(self, broker_epoch: int, key: int, sent_boot_ms: int) -> None:
        self.keys.append(key)
        if self.registrations:
            self.registered_again.set()
        self.registrations.append((broker_epoch, sent_boot_ms))

    def lease_renewed(self, sent_boot_ms: int) -> None:
        self.renewals.append(sent_boot_ms)
        self.renewed.set()


async def test_a_broker_hears_when_its_successful_renewals_were_sent(open_store: OpenStore) -> None:
    clock, notes = BootClock(), Notes()
    async with open_store() as store:
        renew = store.renew

        succeeded: list[int] = []
        """When renewals were sent that succeeded. A busy machine may let the first ones fail."""

        async def slow(lease: int) -> None:
            sent_ms = clock.ms
            clock.ms += 700
            await renew(lease)
            succeeded.append(sent_ms)

        store.renew = slow  # type: ignore[method-assign]
        clock.ms = 40
        writer = registered(store, 3000, holder=notes, boot_ms=clock)
        await writer.start(ENDPOINTS)
        assert notes.registrations == [(1, 40)]
        clock.ms = 1000
        await notes.renewed.wait()
        assert notes.renewals[0] == succeeded[0] >= 1000
        await writer.stop()


async def test_a_broker_of_a_cluster_registers_fenced_and_says_what_it_stands_on(open_store: OpenStore) -> None:
    async with open_store() as store:
        writer = registered(store, standing=Standing("here", unclean=True, clustered=True))
        await writer.start(ENDPOINTS)
        broker = writer.image.brokers[1]
        assert (broker.fenced, broker.storage_id, broker.unclean) == (True, "here", True)
        await writer.stop()


async def test_a_broker_of_a_cluster_whose_lease_ended_registers_in_a_new_epoch(open_store: OpenStore) -> None:
    async with open_store() as store:
        notes = Notes()
        writer = registered(store, 3000, IN_A_CLUSTER, notes)
        await writer.start(ENDPOINTS)
        before = await store.get("brokers/1")
        assert before is not None
        await store.revoke(before.lease)
        back = (await take(store.watch("brokers/", before.mod_revision + 1), 2))[-1]
        await writer.follower.reach(back.mod_revision)
        assert writer.image.brokers[1].fenced
        assert writer.image.brokers[1].epoch == writer.image.broker_epochs[1] == 2
        await notes.registered_again.wait()
        assert [epoch for epoch, _ in notes.registrations] == [1, 2]
        assert writer.broker_epoch == 2
        earlier, now = notes.keys
        assert earlier != now == writer.image.brokers[1].key, "each registration has a key of its own"
        assert all(0 < key < 2**63 for key in notes.keys)
        await writer.stop()


async def test_a_broker_of_a_cluster_whose_successor_registered_ends_with_words(open_store: OpenStore) -> None:
    async with open_store() as store:
        old, new = registered(store, 3000, IN_A_CLUSTER), registered(store, standing=IN_A_CLUSTER)
        await old.start(ENDPOINTS)
        row = await store.get("brokers/1")
        assert row is not None
        await new.start(ENDPOINTS)
        await store.revoke(row.lease)
        assert old.registration.renewing is not None
        with pytest.raises(Fenced, match="another process"):
            await old.registration.renewing
        await old.stop()
        await new.stop()


async def test_a_node_id_that_a_broker_with_other_storage_holds_is_refused(open_store: OpenStore) -> None:
    async with open_store() as store:
        old = registered(store, standing=IN_A_CLUSTER)
        await old.start(ENDPOINTS)
        clock = BootClock()

        def passing() -> int:
            clock.ms += 1000
            return clock.ms

        new = registered(store, 100, Standing("elsewhere", clustered=True), boot_ms=passing)
        with pytest.raises(NodeIdTaken, match=r"node.id 1 is taken: .* at 127.0.0.1:9092"):
            await new.start(ENDPOINTS)
        await new.stop()
        await old.stop()


async def test_a_broker_on_new_storage_waits_until_its_former_life_is_gone(open_store: OpenStore) -> None:
    async with open_store() as store:
        old = registered(store, standing=IN_A_CLUSTER)
        await old.start(ENDPOINTS)
        new = registered(store, 3000, Standing("elsewhere", clustered=True))
        starting = asyncio.create_task(new.start(ENDPOINTS))
        row = await store.get("brokers/1")
        assert row is not None
        await store.revoke(row.lease)
        await starting
        assert new.image.brokers[1].storage_id == "elsewhere"
        assert new.broker_epoch == 2
        await new.stop()
        await old.stop()

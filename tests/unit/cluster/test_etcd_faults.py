"""The store on an etcd of three members of which some are killed, paused, or alone."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import Any

import pytest
from tests.etcd.members import EtcdCluster
from tests.unit.cluster.hurrying import hurry

from cordwood.cluster.stores.etcd import EtcdOptions, EtcdStore
from cordwood.cluster.stores.interface import (
    Event,
    MetadataStore,
    OutcomeUnknown,
    Put,
    StoreClosed,
    StoreFailure,
    StoreUnavailable,
    has_mod_revision,
)

StartEtcd = Callable[..., AbstractContextManager[EtcdCluster]]


@asynccontextmanager
async def opened(cluster: EtcdCluster, name: str = "", **options: Any) -> AsyncIterator[EtcdStore]:
    options = {"deadline_ms": 30_000, "attempt_ms": 1_000, **options}
    store = await EtcdStore.open(EtcdOptions(cluster.endpoints, name or uuid.uuid4().hex, **options))
    try:
        yield store
    finally:
        await store.close()


class Register:
    """A key to which tokens are appended by compare-and-set, as a caller has to do it when outcomes are unknown."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.acknowledged: list[bytes] = []
        self.unknown: list[bytes] = []

    async def append(self, token: bytes) -> None:
        try:
            item = await self._store.get("register")
            value, revision = (item.value, item.mod_revision) if item else (b"", 0)
            put = Put("register", value + token + b" ")
            if (await self._store.txn([has_mod_revision("register", revision)], [put])).succeeded:
                self.acknowledged.append(token)
        except OutcomeUnknown:
            self.unknown.append(token)
        except StoreUnavailable:
            pass

    async def check(self) -> None:
        item = await self._store.get("register")
        assert item is not None
        tokens = item.value.split()
        assert len(tokens) == len(set(tokens)), "a transaction happened twice"
        assert [token for token in tokens if token not in self.unknown] == self.acknowledged


async def follow(store: MetadataStore, from_revision: int, last: bytes) -> list[Event]:
    """All events from a revision on, up to the one with the value `last`, as a follower reads them."""
    events: list[Event] = []
    while True:
        try:
            async for step in store.watch("", events[-1].mod_revision + 1 if events else from_revision):
                events += step.events
                if events and events[-1].value == last:
                    return events
        except StoreUnavailable:
            continue


async def test_the_death_of_the_member_in_use_is_not_noticed_by_callers(start_etcd: StartEtcd) -> None:
    with start_etcd(3) as cluster:
        async with opened(cluster) as store:
            lease = await store.grant(60_000)
            for _ in range(2):
                assert store.member is not None
                member = cluster.at(store.member)
                member.kill()
                await store.renew(lease)
                assert (await store.txn((), [Put("a", b"", lease)])).succeeded
                assert store.member != member.endpoint
                await asyncio.to_thread(cluster.restart, member)


async def test_a_leader_that_dies_during_renewals_and_transactions(start_etcd: StartEtcd) -> None:
    with start_etcd(3) as cluster:
        async with opened(cluster) as store, opened(cluster) as other:
            lease = await store.grant(30_000)
            await store.txn((), [Put("held", b"", lease)])
            renewed = asyncio.Event()

            async def renew() -> None:
                while True:
                    try:
                        await store.renew(lease)
                        renewed.set()
                    except StoreUnavailable:
                        pass
                    await asyncio.sleep(0.01)

            renewing = asyncio.create_task(renew())
            registers = [Register(each) for each in (store, other)]
            for number in range(60):
                if number == 30:
                    await asyncio.to_thread(cluster.leader().kill)
                    renewed.clear()
                await registers[number % 2].append(b"%d" % number)
            await renewed.wait()
            renewing.cancel()
            await asyncio.wait([renewing])
            for register in registers:
                assert len(register.acknowledged) + len(register.unknown) > 20
                await register.check()
            held = await store.get("held")
            assert held is not None
            assert held.lease == lease


async def test_a_watch_misses_nothing_when_its_member_dies_and_sees_nothing_twice(start_etcd: StartEtcd) -> None:
    name = uuid.uuid4().hex
    with start_etcd(3) as cluster:
        async with opened(cluster, name) as store, opened(cluster, name) as writer:
            following = asyncio.create_task(follow(store, 2, b"last"))
            revisions = []
            for number in range(40):
                if number == 20:
                    assert store.member is not None
                    cluster.at(store.member).kill()
                try:
                    revisions.append((await writer.txn((), [Put("a", b"%d" % number), Put("b", b"")])).revision)
                except OutcomeUnknown:
                    continue
            await writer.txn((), [Put("z", b"last")])
            seen = [event.mod_revision for event in (await following)[:-1] if event.key == "a"]
            assert seen == sorted(set(seen))
            assert set(revisions) <= set(seen)


async def test_a_paused_member_is_left(start_etcd: StartEtcd) -> None:
    with start_etcd(3) as cluster:
        async with opened(cluster, attempt_ms=300) as store:
            watch = asyncio.ensure_future(anext(store.watch("", 2)))
            await store.get("a")
            assert store.member is not None
            member = cluster.at(store.member)
            member.pause()
            assert await store.get("a") is None
            assert store.member != member.endpoint
            with pytest.raises(StoreUnavailable):
                await watch
            member.resume()


@pytest.mark.stories
async def test_without_a_majority_calls_and_watches_end_and_later_go_on(start_etcd: StartEtcd) -> None:
    with start_etcd(3) as cluster:
        async with opened(cluster, attempt_ms=300) as store:
            watch = asyncio.ensure_future(anext(store.watch("", 2)))
            await store.get("a")
            assert store.member is not None
            last = cluster.at(store.member)
            dead = [member for member in cluster.members if member is not last]
            hurry(store, 1_000)
            for member in dead:
                member.kill()
            # The member that is left answers nobody's question, but its connection stays: etcd has to end the watch.
            with pytest.raises(StoreUnavailable):
                await watch
            with pytest.raises(StoreUnavailable):
                await store.get("a")
            with pytest.raises(StoreFailure):
                await store.txn((), [Put("a", b"1")])
            await asyncio.to_thread(cluster.restart, dead[0])
            async with asyncio.timeout(60):
                while True:
                    try:
                        await store.txn((), [Put("a", b"2")])
                        break
                    except StoreFailure:
                        continue
            item = await store.get("a")
            assert item is not None
            assert item.value == b"2"


async def test_the_outcome_of_a_transaction_without_an_answer_is_unknown_and_those_behind_it_did_not_happen(
    start_etcd: StartEtcd,
) -> None:
    with start_etcd() as cluster:
        (member,) = cluster.members
        async with opened(cluster, attempt_ms=500) as store:
            hurry(store, 500)
            member.pause()
            outcomes = await asyncio.gather(
                *(store.txn((), [Put(key, b"")]) for key in ("a", "b", "c")), return_exceptions=True
            )
            assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown, StoreUnavailable, StoreUnavailable]
            member.resume()
            async with asyncio.timeout(60):
                while True:
                    try:
                        assert await store.get("b") is await store.get("c") is None
                        break
                    except StoreUnavailable:
                        continue


async def test_a_watch_that_looks_for_a_member_ends_when_the_store_is_closed(start_etcd: StartEtcd) -> None:
    with start_etcd() as cluster:
        async with opened(cluster, deadline_ms=3_600_000) as store:
            cluster.members[0].kill()
            while store.member is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(store.get("a"), 0.1)
            watch = asyncio.ensure_future(anext(store.watch("", 2)))
            await asyncio.sleep(0)
            await store.close()
            with pytest.raises(StoreClosed):
                await watch

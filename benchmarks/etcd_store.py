"""The metadata store on a real etcd of one and of three members, beside SQLite: latencies, failover, leases.

Run: python -m benchmarks.etcd_store [--rounds 500]

etcd runs with its defaults and syncs to this directory's disk. Printed: p50 and p99 of single calls, the time to change
3,400 partitions by compare-and-set in transactions of 100; with three members also how long transactions fail after
the death of etcd's leader, and how long a key outlives its lease's last renewal, with and without that death.
"""

import argparse
import asyncio
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop
from tests.etcd.finding import find_etcd
from tests.etcd.members import EtcdCluster

from cordwood.cluster.stores.etcd import EtcdStore
from cordwood.cluster.stores.interface import MetadataStore, Put, StoreFailure, has_mod_revision
from cordwood.cluster.stores.sqlite import SqliteStore

VALUE = bytes(200)
PARTITIONS = 3_400
AT_ONCE = 100
LEASE_MS = 3_000
_DEFAULTS = ("--heartbeat-interval=100", "--election-timeout=1000")


async def _timed(rounds: int, call: Callable[[], Awaitable[object]]) -> str:
    times_s = []
    for _ in range(rounds):
        began = time.perf_counter()
        await call()
        times_s.append(time.perf_counter() - began)
    times_s.sort()
    return f"{times_s[rounds // 2] * 1000:7.2f} {times_s[rounds * 99 // 100] * 1000:7.2f}"


async def _single_calls(store: MetadataStore, watcher: MetadataStore, rounds: int) -> None:
    revision = (await store.txn((), [Put("a", VALUE)])).revision
    lease = await store.grant(60_000)

    async def put() -> None:
        await store.txn((), [Put("a", VALUE)])

    async def compare_and_set() -> None:
        nonlocal revision
        result = await store.txn([has_mod_revision("b", revision)], [Put("b", VALUE)])
        assert result.succeeded
        revision = result.revision

    async def put_and_see() -> None:
        await store.txn((), [Put("c", VALUE)])
        await anext(watch)

    print("  p50 and p99 in ms")
    print("  put             ", await _timed(rounds, put))
    revision = (await store.txn((), [Put("b", VALUE)])).revision
    print("  compare-and-set ", await _timed(rounds, compare_and_set))
    watch = watcher.watch("c", revision)
    print("  put, seen by a watch of another connection", await _timed(rounds, put_and_see))
    print("  get             ", await _timed(rounds, lambda: store.get("a")))
    print("  renewal         ", await _timed(rounds, lambda: store.renew(lease)))


async def _partitions(store: MetadataStore) -> None:
    keys = [f"partitions/{number:05}" for number in range(PARTITIONS)]
    groups = [keys[start : start + AT_ONCE] for start in range(0, PARTITIONS, AT_ONCE)]
    for group in groups:
        await store.txn((), [Put(key, VALUE) for key in group])
    began = time.perf_counter()
    revisions = {item.key: item.mod_revision for item in (await store.list("partitions/")).items}
    listed = time.perf_counter()
    for group in groups:
        compares = [has_mod_revision(key, revisions[key]) for key in group]
        assert (await store.txn(compares, [Put(key, VALUE) for key in group])).succeeded
    print(f"  {PARTITIONS} partitions: listed in {listed - began:.3f} s", end=", ")
    print(f"changed by compare-and-set, {AT_ONCE} at once, in {time.perf_counter() - listed:.2f} s")


async def _failover(cluster: EtcdCluster, store: EtcdStore) -> None:
    leader = cluster.leader()
    began = time.perf_counter()
    leader.kill()
    while True:
        try:
            await store.txn((), [Put("a", VALUE)])
            break
        except StoreFailure:
            continue
    print(f"  transactions after the death of etcd's leader: {time.perf_counter() - began:.1f} s")
    await asyncio.to_thread(cluster.restart, leader)


async def _expiry(cluster: EtcdCluster, store: EtcdStore, *, with_leader: bool) -> None:
    lease = await store.grant(LEASE_MS)
    await store.txn((), [Put("held", b"", lease)])
    await store.renew(lease)
    began = time.perf_counter()
    leader = cluster.leader()
    if with_leader:
        leader.kill()
    while True:
        try:
            if await store.get("held") is None:
                break
            await asyncio.sleep(0.02)
        except StoreFailure:
            continue
    along = "with etcd's leader" if with_leader else "alone"
    print(f"  a lease of {LEASE_MS} ms whose owner dies {along} ends after {time.perf_counter() - began:.1f} s")
    if with_leader:
        await asyncio.to_thread(cluster.restart, leader)


async def _etcd(directory: Path, members: int, rounds: int) -> None:
    with EtcdCluster(find_etcd(), directory / f"etcd-{members}", members, options=_DEFAULTS) as cluster:
        name = uuid.uuid4().hex
        store = await EtcdStore.connect(cluster.endpoints, name)
        watcher = await EtcdStore.connect(cluster.endpoints, name)
        print(f"{find_etcd()}, members: {members}")
        await _single_calls(store, watcher, rounds)
        await _partitions(store)
        if members > 1:
            await _failover(cluster, store)
            await _expiry(cluster, store, with_leader=False)
            await _expiry(cluster, store, with_leader=True)
        await store.close()
        await watcher.close()


async def _measure(rounds: int) -> None:
    with tempfile.TemporaryDirectory(dir=".", prefix=".etcd-store-") as name:
        directory = Path(name)
        store = await SqliteStore.open(str(directory / "metadata.sqlite"))
        print("SQLite, in the process")
        await _single_calls(store, store, rounds)
        await _partitions(store)
        await store.close()
        for members in (1, 3):
            await _etcd(directory, members, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    uvloop.run(_measure(parser.parse_args().rounds))

"""Every store against a twin that keeps a whole copy of itself per revision and cannot be wrong."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.etcd.members import EtcdCluster
from tests.etcd.rebased import open_rebased
from tests.seeds import examples

from cordwood.cluster.stores.interface import (
    Compacted,
    Compare,
    Delete,
    DeletePrefix,
    Event,
    KeyValue,
    MetadataStore,
    Operation,
    Put,
    Relation,
    Target,
    WatchStep,
)
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.cluster.stores.sqlite import SqliteStore

KEYS = st.sampled_from(["a", "a/1", "a/2", "a/10", "b/1", "b/2", "c"])
PREFIXES = st.sampled_from(["", "a", "a/", "b/", "z"])
VALUES = st.sampled_from([b"", b"1", b"2", b"\x00\xff"])


class Twin:
    """The contract, as dumb as it can be said."""

    def __init__(self) -> None:
        self.states: dict[int, dict[str, KeyValue]] = {1: {}}
        self.revision = 1
        self.compact_revision = 0

    def _holds(self, compare: Compare) -> bool:
        item = self.states[self.revision].get(compare.key)
        if compare.target is Target.VALUE and item is None:
            return False
        actual: Any = 0
        if item is not None:
            actual = getattr(item, compare.target.value)
        operand: Any = compare.operand
        answers: dict[Relation, bool] = {
            Relation.EQUAL: actual == operand,
            Relation.NOT_EQUAL: actual != operand,
            Relation.LESS: actual < operand,
            Relation.GREATER: actual > operand,
        }
        return answers[compare.relation]

    def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> tuple[bool, int]:
        if not all(map(self._holds, compares)):
            return False, self.revision
        before = self.states[self.revision]
        after = dict(before)
        changed = False
        for operation in operations:
            match operation:
                case Put(key, value):
                    created = before[key].create_revision if key in before else self.revision + 1
                    after[key] = KeyValue(key, value, created, self.revision + 1)
                    changed = True
                case Delete(key):
                    changed |= after.pop(key, None) is not None
                case DeletePrefix(prefix):
                    for key in before:
                        if key.startswith(prefix):
                            changed |= after.pop(key, None) is not None
        if changed:
            self.revision += 1
            self.states[self.revision] = after
        return True, self.revision

    def list(self, prefix: str, revision: int) -> tuple[int, Any] | type[Exception]:
        revision = revision or self.revision
        if revision > self.revision:
            return ValueError
        if revision < self.compact_revision:
            return Compacted
        return revision, [item for key, item in sorted(self.states[revision].items()) if key.startswith(prefix)]

    def events(self, prefix: str, first: int, last: int) -> Any:
        found = []
        for revision in range(first, last + 1):
            before, after = self.states[revision - 1], self.states[revision]
            for key in sorted({*before, *after}):
                if before.get(key) != after.get(key) and key.startswith(prefix):
                    found.append(Event(*after[key][:4]) if key in after else Event(key, None, 0, revision))
        return found


@st.composite
def operations(draw: st.DrawFn) -> list[Operation]:
    """Some that etcd takes: no key twice, nothing put under a deleted prefix."""
    prefixes = draw(st.lists(st.sampled_from(["a/", "b/"]), max_size=1))
    chosen: list[Operation] = [DeletePrefix(prefix) for prefix in prefixes]
    for key in draw(st.lists(KEYS, max_size=4, unique=True)):
        if draw(st.booleans()):
            chosen.append(Delete(key))
        elif not any(key.startswith(prefix) for prefix in prefixes):
            chosen.append(Put(key, draw(VALUES)))
    return chosen


COMPARES = st.one_of(
    st.builds(Compare, KEYS, st.just(Target.VALUE), st.sampled_from(Relation), VALUES),
    st.builds(
        Compare,
        KEYS,
        st.sampled_from([Target.CREATE_REVISION, Target.MOD_REVISION]),
        st.sampled_from(Relation),
        st.integers(0, 12),
    ),
)
STEPS = st.one_of(
    st.tuples(st.just("txn"), st.lists(COMPARES, max_size=2), operations()),
    st.tuples(st.just("txn"), st.just([]), operations()),
    st.tuples(st.just("together"), st.lists(st.tuples(st.lists(COMPARES, max_size=1), operations()), max_size=5)),
    st.tuples(st.just("list"), PREFIXES, st.integers(0, 15)),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("compact"), st.integers(1, 15)),
    st.tuples(st.just("watch"), PREFIXES, st.integers(0, 15)),
    st.tuples(st.just("reopen")),
)


class Check:
    """Plays the same steps on a store and on the twin."""

    def __init__(self, kind: str, directory: str, etcd: EtcdCluster | None = None) -> None:
        self.kind = kind
        self.etcd = etcd
        self.path = str(Path(directory) / "metadata.sqlite")
        self.twin = Twin()
        self.store: MetadataStore

    async def open(self) -> None:
        if self.etcd is not None:
            self.store = await open_rebased(self.etcd)
            return
        self.store = MemoryStore() if self.kind == "memory" else await SqliteStore.open(self.path)

    async def step(self, name: str, *arguments: Any) -> None:
        await getattr(self, "_" + name)(*arguments)

    async def _txn(self, compares: list[Compare], changes: list[Operation]) -> None:
        assert await self.store.txn(compares, changes) == self.twin.txn(compares, changes)

    async def _together(self, transactions: list[tuple[list[Compare], list[Operation]]]) -> None:
        results = await asyncio.gather(*(self.store.txn(*transaction) for transaction in transactions))
        assert list(results) == [self.twin.txn(*transaction) for transaction in transactions]

    async def _list(self, prefix: str, revision: int) -> None:
        expected = self.twin.list(prefix, revision)
        if isinstance(expected, tuple):
            assert await self.store.list(prefix, revision) == expected
        else:
            with pytest.raises(expected):
                await self.store.list(prefix, revision)

    async def _get(self, key: str) -> None:
        assert await self.store.get(key) == self.twin.states[self.twin.revision].get(key)

    async def _compact(self, revision: int) -> None:
        if revision > self.twin.revision:
            with pytest.raises(ValueError):
                await self.store.compact(revision)
            return
        await self.store.compact(revision)
        edge = self.twin.compact_revision = max(self.twin.compact_revision, revision)
        # Mistakes are made at the edge of what is kept.
        for near in (edge - 1, edge, edge + 1):
            if near > 0:
                await self._list("", near)
                await self._watch("", near)

    async def _watch(self, prefix: str, first: int) -> None:
        if first > self.twin.revision:
            return
        watch = self.store.watch(prefix, first)
        first = max(first, 2)
        # etcd keeps the events of the compacted revision itself, the other stores only those after it.
        if first < self.twin.compact_revision + (self.kind != "etcd"):
            with pytest.raises(Compacted):
                await anext(watch)
            return
        expected = self.twin.events(prefix, first, self.twin.revision)
        assert await self._take(watch, len(expected)) == expected

    async def _take(self, watch: AsyncIterator[WatchStep], count: int) -> list[Event]:
        events: list[Event] = []
        while len(events) < count:
            events += (await anext(watch)).events
        return events

    async def _reopen(self) -> None:
        if self.kind == "sqlite":
            await self.store.close()
            await self.open()


async def play(kind: str, steps: list[tuple[Any, ...]], etcd: EtcdCluster | None = None) -> None:
    with tempfile.TemporaryDirectory() as directory:
        check = Check(kind, directory, etcd)
        await check.open()
        live = check.store.watch("", 2)
        reopened = any(name == "reopen" for name, *_ in steps) and kind == "sqlite"
        for name, *arguments in steps:
            await check.step(name, *arguments)
        await check.step("list", "", 0)
        if not reopened and not check.twin.compact_revision:
            expected = check.twin.events("", 2, check.twin.revision)
            assert await check._take(live, len(expected)) == expected
        await check.store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=25))
def test_a_store_does_what_its_twin_does(kind: str, steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(play(kind, steps))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, max_size=25))
def test_etcd_does_what_its_twin_does(one_etcd: EtcdCluster, steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(play("etcd", steps, one_etcd))


async def compact_step_by_step(kind: str, transactions: list[list[Operation]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        check = Check(kind, directory)
        await check.open()
        for changes in transactions:
            await check.step("txn", [], changes)
        last = check.twin.revision
        for revision in range(1, last + 1):
            await check.step("compact", revision)
            for kept in range(revision, last + 1):
                await check.step("list", "", kept)
            await check.step("watch", "", revision + 1)
        await check.step("reopen")
        await check.step("list", "", last)
        await check.store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(transactions=st.lists(operations(), max_size=8))
def test_compaction_at_any_revision_keeps_every_later_one(kind: str, transactions: list[list[Operation]]) -> None:
    asyncio.run(compact_step_by_step(kind, transactions))

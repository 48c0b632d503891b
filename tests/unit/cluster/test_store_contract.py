"""The contract of stores/interface.py, sentence by sentence, over every store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pytest
from tests.unit.cluster.kinds import WITHOUT_ETCD

from cordwood.cluster.stores.interface import (
    MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES,
    Compacted,
    Compare,
    Delete,
    DeletePrefix,
    Event,
    InvalidTransaction,
    KeyValue,
    MetadataStore,
    Operation,
    Put,
    Relation,
    StoreClosed,
    Target,
    TxnResult,
    WatchStep,
    absent,
    has_mod_revision,
    has_value,
    unchanged_since,
)


class OpenStore(Protocol):
    def __call__(self, *, retained_revisions: int = ...) -> AbstractAsyncContextManager[MetadataStore]: ...


async def put(store: MetadataStore, *pairs: tuple[str, bytes]) -> int:
    result = await store.txn((), [Put(key, value) for key, value in pairs])
    assert result.succeeded
    return result.revision


async def take(watch: AsyncIterator[WatchStep], count: int) -> list[Event]:
    events: list[Event] = []
    while len(events) < count:
        events += (await anext(watch)).events
    return events


async def test_an_empty_store_is_at_revision_one_and_its_first_change_is_at_two(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert await store.list("") == (1, [])
        assert await put(store, ("a", b"1")) == 2


async def test_a_key_remembers_when_it_was_created_and_when_it_was_last_written(open_store: OpenStore) -> None:
    async with open_store() as store:
        created = await put(store, ("a", b"1"))
        changed = await put(store, ("a", b"2"))
        assert await store.get("a") == KeyValue("a", b"2", created, changed)


async def test_a_key_that_was_deleted_and_put_again_is_a_new_key(open_store: OpenStore) -> None:
    async with open_store() as store:
        await put(store, ("a", b"1"))
        await store.txn((), [Delete("a")])
        assert await store.get("a") is None
        again = await put(store, ("a", b"2"))
        assert await store.get("a") == KeyValue("a", b"2", again, again)


async def test_an_empty_value_is_not_a_missing_key(open_store: OpenStore) -> None:
    async with open_store() as store:
        revision = await put(store, ("a", b""))
        assert await store.get("a") == KeyValue("a", b"", revision, revision)


async def test_all_changes_of_a_transaction_carry_one_revision(open_store: OpenStore) -> None:
    async with open_store() as store:
        revision = await put(store, ("b", b"1"), ("a", b"1"), ("c", b"1"))
        listing = await store.list("")
        assert [(item.key, item.mod_revision) for item in listing.items] == [
            ("a", revision),
            ("b", revision),
            ("c", revision),
        ]


async def test_a_transaction_that_changes_nothing_takes_no_revision(open_store: OpenStore) -> None:
    async with open_store() as store:
        revision = await put(store, ("a", b"1"))
        assert await store.txn((), [Delete("missing"), DeletePrefix("none/")]) == TxnResult(True, revision)
        assert await store.txn([absent("a")], [Put("b", b"1")]) == TxnResult(False, revision)
        assert await store.txn([absent("b")], []) == TxnResult(True, revision)


async def test_writing_the_same_value_again_is_a_change(open_store: OpenStore) -> None:
    async with open_store() as store:
        first = await put(store, ("a", b"1"))
        assert await put(store, ("a", b"1")) == first + 1


@pytest.mark.parametrize(
    ("compare", "expected"),
    [
        (has_value("a", b"2"), True),
        (has_value("a", b"1"), False),
        (has_value("missing", b""), False),
        (Compare("a", Target.VALUE, Relation.NOT_EQUAL, b"1"), True),
        (Compare("missing", Target.VALUE, Relation.NOT_EQUAL, b"1"), False),
        (Compare("a", Target.VALUE, Relation.GREATER, b"1"), True),
        (Compare("a", Target.VALUE, Relation.LESS, b"1"), False),
        (has_mod_revision("a", 3), True),
        (has_mod_revision("a", 2), False),
        (Compare("a", Target.CREATE_REVISION, Relation.EQUAL, 2), True),
        (Compare("a", Target.MOD_REVISION, Relation.GREATER, 2), True),
        (Compare("a", Target.MOD_REVISION, Relation.LESS, 3), False),
        (Compare("a", Target.CREATE_REVISION, Relation.NOT_EQUAL, 0), True),
        (absent("a"), False),
        (absent("missing"), True),
        (has_mod_revision("missing", 0), True),
    ],
)
async def test_a_comparison_decides_whether_a_transaction_happens(
    open_store: OpenStore, compare: Compare, expected: bool
) -> None:
    async with open_store() as store:
        await put(store, ("a", b"1"))
        await put(store, ("a", b"2"))
        assert (await store.txn([compare], [Put("b", b"1")])).succeeded is expected
        assert (await store.get("b") is not None) is expected


async def test_one_failed_comparison_of_many_is_enough_to_do_nothing(open_store: OpenStore) -> None:
    async with open_store() as store:
        await put(store, ("a", b"1"))
        result = await store.txn([has_value("a", b"1"), absent("a")], [Delete("a"), Put("b", b"1")])
        assert not result.succeeded
        assert [item.key for item in (await store.list("")).items] == ["a"]


async def test_of_two_writers_that_read_the_same_state_one_wins(open_store: OpenStore) -> None:
    async with open_store() as store:
        await put(store, ("counter", b"0"))
        seen = await store.get("counter")
        assert seen is not None
        results = await asyncio.gather(
            *(store.txn([unchanged_since(seen)], [Put("counter", b"%d" % writer)]) for writer in range(10))
        )
        assert [result.succeeded for result in results] == [True] + [False] * 9


async def test_transactions_take_effect_in_the_order_in_which_they_were_asked_for(open_store: OpenStore) -> None:
    async with open_store() as store:
        results = await asyncio.gather(*(store.txn((), [Put("a", b"%d" % number)]) for number in range(300)))
        assert [result.revision for result in results] == list(range(2, 302))
        item = await store.get("a")
        assert item is not None
        assert item.value == b"299"


async def test_a_prefix_is_listed_in_the_order_of_keys(open_store: OpenStore) -> None:
    async with open_store() as store:
        await put(store, ("b/2", b""), ("b/10", b""), ("a/1", b""), ("b", b""), ("b0", b""), ("b/1", b""))
        assert [item.key for item in (await store.list("b/")).items] == ["b/1", "b/10", "b/2"]
        assert [item.key for item in (await store.list("b")).items] == ["b", "b/1", "b/10", "b/2", "b0"]


async def test_the_past_can_be_listed(open_store: OpenStore) -> None:
    async with open_store() as store:
        first = await put(store, ("a", b"1"), ("b", b"1"))
        second = (await store.txn((), [Put("a", b"2"), Delete("b")])).revision
        await put(store, ("b", b"3"))
        assert await store.list("", first) == (
            first,
            [KeyValue("a", b"1", first, first), KeyValue("b", b"1", first, first)],
        )
        assert await store.list("", second) == (second, [KeyValue("a", b"2", first, second)])


async def test_the_future_cannot_be_listed(open_store: OpenStore) -> None:
    async with open_store() as store:
        with pytest.raises(ValueError, match="future"):
            await store.list("", 2)


async def test_deleting_a_prefix_is_one_operation_however_many_keys_it_has(open_store: OpenStore) -> None:
    async with open_store() as store:
        for start in range(0, 300, 100):
            await put(store, *((f"p/{number}", b"") for number in range(start, start + 100)))
        kept = await put(store, ("p", b""), ("q/1", b""))
        assert (await store.txn((), [DeletePrefix("p/")])).revision == kept + 1
        assert [item.key for item in (await store.list("")).items] == ["p", "q/1"]


async def test_a_watch_sees_every_change_from_its_revision_on(open_store: OpenStore) -> None:
    async with open_store() as store:
        await put(store, ("a", b"1"))
        second = await put(store, ("a", b"2"))
        watch = store.watch("", second)
        third = (await store.txn((), [Delete("a"), Put("b", b"1")])).revision
        assert await take(watch, 3) == [
            Event("a", b"2", second - 1, second),
            Event("a", None, 0, third),
            Event("b", b"1", third, third),
        ]


async def test_a_watch_sees_only_its_prefix(open_store: OpenStore) -> None:
    async with open_store() as store:
        watch = store.watch("b/", 2)
        await put(store, ("a", b"1"))
        await put(store, ("b/1", b"1"), ("b", b"1"))
        assert await take(watch, 1) == [Event("b/1", b"1", 3, 3)]


async def test_a_watch_waits_for_what_is_not_there_yet(open_store: OpenStore) -> None:
    async with open_store() as store:
        watch = store.watch("", 4)
        waiting = asyncio.ensure_future(take(watch, 1))
        await put(store, ("a", b"1"))
        await put(store, ("a", b"2"))
        await asyncio.sleep(0)
        assert not waiting.done()
        await put(store, ("a", b"3"))
        assert [event.value for event in await waiting] == [b"3"]


async def test_a_watch_never_gives_part_of_a_revision(open_store: OpenStore) -> None:
    async with open_store() as store:
        watch = store.watch("", 2)
        for round_number in range(5):
            await put(store, *((f"k{number}", b"%d" % round_number) for number in range(100)))
        seen: list[int] = []
        while len(seen) < 500:
            batch = (await anext(watch)).events
            revisions = [event.mod_revision for event in batch]
            assert revisions == sorted(revisions)
            assert all(revisions.count(revision) == 100 for revision in set(revisions))
            seen += revisions
        assert seen == sorted(seen)


async def test_listing_then_watching_from_the_next_revision_misses_nothing(open_store: OpenStore) -> None:
    async with open_store() as store:
        await put(store, ("a", b"1"))
        listing = await store.list("")
        watch = store.watch("", listing.revision + 1)
        await put(store, ("a", b"2"))
        assert [event.value for event in await take(watch, 1)] == [b"2"]


async def test_a_compacted_revision_can_still_be_listed_but_not_one_before_it(open_store: OpenStore) -> None:
    async with open_store() as store:
        first = await put(store, ("a", b"1"), ("b", b"1"))
        second = (await store.txn((), [Put("a", b"2"), Delete("b")])).revision
        await put(store, ("a", b"3"))
        await store.compact(second)
        assert await store.list("", second) == (second, [KeyValue("a", b"2", first, second)])
        with pytest.raises(Compacted) as refused:
            await store.list("", first)
        assert refused.value.compact_revision == second


async def test_a_watch_from_a_compacted_revision_is_told_so(open_store: OpenStore) -> None:
    async with open_store() as store:
        first = await put(store, ("a", b"1"))
        second = await put(store, ("a", b"2"))
        third = await put(store, ("a", b"3"))
        await store.compact(second)
        with pytest.raises(Compacted):
            await anext(store.watch("", first))
        assert await take(store.watch("", third), 1) == [Event("a", b"3", first, third)]


# etcd has sent the events before it compacts them; a watch that begins too late is told so, too.
@WITHOUT_ETCD
async def test_a_watch_that_falls_behind_a_compaction_is_told_so(open_store: OpenStore) -> None:
    async with open_store() as store:
        watch = store.watch("", 2)
        await put(store, ("a", b"1"))
        assert len(await take(watch, 1)) == 1
        await put(store, ("a", b"2"))
        last = await put(store, ("a", b"3"))
        await store.compact(last)
        with pytest.raises(Compacted):
            await anext(watch)


async def test_compaction_keeps_the_present(open_store: OpenStore) -> None:
    async with open_store() as store:
        await put(store, ("a", b"1"), ("b", b"1"), ("c", b"1"))
        await store.txn((), [Put("a", b"2"), Delete("b")])
        before = await store.list("")
        await store.compact(before.revision)
        assert await store.list("") == before
        assert await store.get("b") is None
        await store.compact(1)
        assert await store.list("") == before


async def test_the_future_cannot_be_compacted(open_store: OpenStore) -> None:
    async with open_store() as store:
        with pytest.raises(ValueError, match="future"):
            await store.compact(2)


# etcd's own setting decides how long its history is kept.
@WITHOUT_ETCD
async def test_old_revisions_go_by_themselves_and_the_promised_ones_stay(open_store: OpenStore) -> None:
    async with open_store(retained_revisions=10) as store:
        for number in range(50):
            await put(store, ("a", b"%d" % number))
        assert (await store.list("", 51 - 9)).items[0].value == b"40"
        with pytest.raises(Compacted):
            await store.list("", 51 - 25)


@pytest.mark.parametrize(
    ("compares", "operations"),
    [
        ([], [Put(f"k{number}", b"") for number in range(MAX_OPERATIONS + 1)]),
        ([absent(f"k{number}") for number in range(MAX_OPERATIONS + 1)], []),
        ([], [Put("a", bytes(MAX_TRANSACTION_BYTES))]),
        ([], [Put("a", b"1"), Put("a", b"2")]),
        ([], [Put("a", b"1"), Delete("a")]),
        ([], [Put("a/1", b"1"), DeletePrefix("a/")]),
        ([], [Put("", b"1")]),
        ([Compare("a", Target.VALUE, Relation.EQUAL, 1)], []),
        ([Compare("a", Target.MOD_REVISION, Relation.EQUAL, b"1")], []),
    ],
)
async def test_what_etcd_would_not_take_is_refused_and_changes_nothing(
    open_store: OpenStore, compares: list[Compare], operations: list[Operation]
) -> None:
    async with open_store() as store:
        with pytest.raises(InvalidTransaction):
            await store.txn(compares, operations)
        assert await store.list("") == (1, [])


async def test_a_transaction_may_be_as_large_as_etcd_takes_it(open_store: OpenStore) -> None:
    async with open_store() as store:
        compares = [absent(f"k{number}") for number in range(MAX_OPERATIONS)]
        operations = [Put(f"k{number}", bytes(12_000)) for number in range(MAX_OPERATIONS)]
        assert (await store.txn(compares, operations)).succeeded
        assert len((await store.list("k")).items) == MAX_OPERATIONS


async def test_closing_ends_watches_and_refuses_everything_after(open_store: OpenStore) -> None:
    async with open_store() as store:
        await put(store, ("a", b"1"))
        watch = store.watch("", 3)
        waiting = asyncio.ensure_future(take(watch, 1))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreClosed):
            await waiting
        with pytest.raises(StoreClosed):
            await store.get("a")
        with pytest.raises(StoreClosed):
            await store.txn((), [Put("a", b"2")])
        await store.close()

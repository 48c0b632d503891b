"""Finding poison records in pieces of a batch, on functions that fail for known reasons."""

from collections.abc import Callable, Collection, Iterable, Set

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.pipelines.rows.isolation import PIECE_BITS, PIECES, Failed, Origin, Region, find_poison


def hash_of(record: Origin) -> int:
    return (record.offset * 2_654_435_761 + record.partition * 97) & 0xFFFFFFFF


class Function:
    """Fails on records, alone or together. Counts the tries, which are Spark's jobs."""

    def __init__(
        self,
        records: Collection[Origin],
        poison: Collection[Origin] = (),
        *,
        names_tasks: bool = True,
        together: Callable[[Collection[Origin]], bool] = lambda records: False,
    ) -> None:
        self.count = 0
        self._by_piece: dict[int, list[Origin]] = {}
        self._poison = frozenset(poison)
        self._records = records
        self._names_tasks = names_tasks
        self._together = together

    def apart(self, region: Region, pieces: Set[int], without: Collection[Origin]) -> Failed | None:
        self.count += 1
        tasks: dict[int, list[Origin]] = {piece: [] for piece in pieces}
        for record in self._in(region):
            piece = hash_of(record) >> region.bits & PIECES - 1
            if piece in tasks and record not in without:
                tasks[piece].append(record)
        for piece, records in sorted(tasks.items()):
            if self._poison & set(records):
                passed = {each for each in tasks if each < piece}
                return Failed({piece}, passed) if self._names_tasks else Failed()
        return Failed() if self._together([each for records in tasks.values() for each in records]) else None

    def records(self, region: Region) -> list[Origin]:
        self.count += 1
        return self._in(region)

    def alone(self, record: Origin) -> str | None:
        self.count += 1
        return f"fails on {record}" if record in self._poison or self._together([record]) else None

    def _in(self, region: Region) -> list[Origin]:
        known = self._by_piece
        if not known:
            for record in self._records:
                known.setdefault(hash_of(record) & PIECES - 1, []).append(record)
        there: Iterable[Origin] = self._records if not region.bits else known.get(region.value & PIECES - 1, [])
        return [each for each in there if hash_of(each) & (1 << region.bits) - 1 == region.value]


RECORDS = [
    Origin("orders", partition, offset) for partition, count in ((0, 50), (1, 1), (2, 40)) for offset in range(count)
]


@pytest.mark.parametrize("names_tasks", [True, False])
@given(poison=st.sets(st.sampled_from(RECORDS), max_size=8))
def test_exactly_the_poison_records_are_found_with_their_own_errors(poison: set[Origin], names_tasks: bool) -> None:
    function = Function(RECORDS, poison, names_tasks=names_tasks)
    found = find_poison(len(RECORDS), function, limit=8)
    assert found == {origin: f"fails on {origin}" for origin in poison}


@pytest.mark.parametrize(("names_tasks", "most"), [(True, 7), (False, 40)])
def test_a_few_tries_find_one_record_in_a_hundred_thousand(names_tasks: bool, most: int) -> None:
    records = [Origin("orders", 0, offset) for offset in range(100_000)]
    function = Function(records, {records[77_777]}, names_tasks=names_tasks)
    assert set(find_poison(len(records), function, limit=0)) == {records[77_777]}
    assert function.count <= most


def test_ten_records_cost_ten_times_as_many_tries_as_one_at_most() -> None:
    records = [Origin("orders", 0, offset) for offset in range(30_000)]
    poison = set(records[::3_000])
    function = Function(records, poison)
    assert set(find_poison(len(records), function, limit=10)) == poison
    assert function.count <= 70


def test_the_search_ends_when_there_are_more_than_allowed() -> None:
    function = Function(RECORDS, RECORDS)
    found = find_poison(len(RECORDS), function, limit=3)
    assert 4 <= len(found) <= 8, "records of one piece are found together"
    assert function.count < 40


def test_a_failure_of_records_together_is_blamed_on_none_of_them_and_found_out_soon() -> None:
    function = Function(RECORDS, together=lambda records: len(records) > 1)
    assert find_poison(len(RECORDS), function, limit=5) == {}
    assert function.count < 4 * PIECE_BITS


def test_nothing_is_found_where_there_is_nothing() -> None:
    function = Function([])
    assert (find_poison(0, function, limit=1), function.count) == ({}, 1)

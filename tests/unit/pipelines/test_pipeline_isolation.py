"""Finding poison records by halving, on functions that fail for known reasons."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.pipelines.rows.isolation import Origin, Span, find_poison


class Function:
    """Fails if one of the poison records is in its input; counts its calls."""

    def __init__(self, poison: set[Origin]) -> None:
        self.poison = poison
        self.tries = 0

    def __call__(self, spans: Sequence[Span]) -> str | None:
        self.tries += 1
        hit = [
            origin
            for origin in sorted(self.poison)
            for span in spans
            if (span.topic, span.partition) == origin[:2] and span.start <= origin.offset < span.end
        ]
        return f"fails on {hit[0]}" if hit else None


SPANS = [Span("orders", 0, 10, 60), Span("orders", 1, 0, 1), Span("orders", 2, 7, 7), Span("returns", 0, 5, 40)]
ADDRESSES = [Origin(span.topic, span.partition, offset) for span in SPANS for offset in range(span.start, span.end)]


@given(st.sets(st.sampled_from(ADDRESSES), max_size=8))
def test_exactly_the_poison_records_are_found_with_their_own_errors(poison: set[Origin]) -> None:
    found = find_poison(SPANS, Function(poison), limit=8)
    assert found == {origin: f"fails on {origin}" for origin in poison}


def test_a_few_tries_find_one_record_in_a_million() -> None:
    function = Function({Origin("orders", 0, 777_777)})
    assert set(find_poison([Span("orders", 0, 0, 1_000_000)], function, limit=0)) == function.poison
    assert function.tries <= 45


def test_the_search_ends_when_there_are_more_than_allowed() -> None:
    function = Function({Origin("orders", 0, offset) for offset in range(1000)})
    found = find_poison([Span("orders", 0, 0, 1_000)], function, limit=3)
    assert len(found) == 4
    assert function.tries < 100


def test_a_failure_of_records_together_is_blamed_on_none_of_them() -> None:
    def two_together(spans: Sequence[Span]) -> str | None:
        return "too many" if sum(span.end - span.start for span in spans) > 1 else None

    assert find_poison(SPANS, two_together, limit=5) == {}


@pytest.mark.parametrize("spans", [[], [Span("orders", 0, 5, 5)]])
def test_nothing_is_found_where_there_is_nothing(spans: list[Span]) -> None:
    assert find_poison(spans, lambda _: "always", limit=1) == {}

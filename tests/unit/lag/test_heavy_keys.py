"""The sketch of frequent keys, beside one that counts them all."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cordwood.lag.heavy_keys import HeavyKeys

keys = st.lists(st.sampled_from([bytes([letter]) for letter in b"aaaaaabbbcdefghijklm"]), max_size=300)


@given(keys, st.integers(1, 8))
def test_counts_are_bounded_on_both_sides_and_heavy_keys_are_always_held(stream: list[bytes], capacity: int) -> None:
    sketch = HeavyKeys(capacity)
    for key in stream:
        sketch.add(key)
    true = Counter(stream)
    held = {heavy.key: heavy for heavy in sketch.top(capacity)}
    assert sketch.total == len(stream)
    assert len(sketch) <= capacity
    for key, heavy in held.items():
        assert heavy.occurrences - heavy.excess <= true[key] <= heavy.occurrences
    for key, count in true.items():
        assert key in held or count * capacity <= len(stream)


def test_the_most_frequent_come_first() -> None:
    sketch = HeavyKeys(4)
    for key in b"abracadabra":
        sketch.add(bytes([key]))
    assert sketch.top(1)[0].key == b"a"


@given(keys)
def test_halving_fades_the_past_and_keeps_the_order(stream: list[bytes]) -> None:
    sketch = HeavyKeys(100)
    for key in stream:
        sketch.add(key)
    before = {heavy.key: heavy.occurrences for heavy in sketch.top(100)}
    sketch.halve()
    assert {heavy.key: heavy.occurrences for heavy in sketch.top(100)} == {
        key: count // 2 for key, count in before.items() if count > 1
    }
    assert sketch.total == len(stream) // 2

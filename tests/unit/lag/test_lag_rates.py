"""Rates from samples: a bounded window that survives resets and clocks that jump."""

from hypothesis import given
from hypothesis import strategies as st

from cordwood.lag.rates import MAX_SAMPLES, WINDOW_MS, Sample, rate_per_s, with_sample


def samples_of(*pairs: tuple[int, int]) -> tuple[Sample, ...]:
    samples: tuple[Sample, ...] = ()
    for at_ms, value in pairs:
        samples = with_sample(samples, Sample(at_ms, value))
    return samples


def test_one_sample_says_nothing_about_a_rate() -> None:
    assert rate_per_s(samples_of((1000, 5))) is None
    assert rate_per_s(()) is None


def test_a_steady_reader_has_its_rate() -> None:
    assert rate_per_s(samples_of(*((second * 1000, second * 250) for second in range(200)))) == 250


def test_a_reader_that_stopped_is_at_zero_after_a_window() -> None:
    moving = [(second * 1000, second * 100) for second in range(60)]
    stopped = [(second * 1000, 5900) for second in range(60, 60 + 90)]
    assert rate_per_s(samples_of(*moving, *stopped)) == 0


def test_a_position_that_was_reset_begins_anew() -> None:
    samples = samples_of((0, 100), (1000, 200), (2000, 50), (3000, 60))
    assert samples == (Sample(2000, 50), Sample(3000, 60))
    assert rate_per_s(samples) == 10


def test_a_clock_that_went_back_begins_anew() -> None:
    assert samples_of((5000, 1), (4000, 2)) == (Sample(4000, 2),)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 1000)), max_size=200))
def test_samples_are_bounded_in_number_and_cover_the_window(steps: list[tuple[int, int]]) -> None:
    samples: tuple[Sample, ...] = ()
    at_ms = value = 0
    first_ms: int | None = None
    for later_ms, more in steps:
        at_ms, value = at_ms + later_ms, value + more
        first_ms = at_ms if first_ms is None else first_ms
        samples = with_sample(samples, Sample(at_ms, value))
        assert samples[-1] == Sample(at_ms, value)
        assert 1 <= len(samples) <= MAX_SAMPLES
        assert list(samples) == sorted(samples)
        assert samples[0].at_ms == first_ms or at_ms - samples[0].at_ms >= WINDOW_MS / 2
        rate = rate_per_s(samples)
        assert rate is None or rate >= 0

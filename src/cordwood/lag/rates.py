"""The rate of an offset, from samples over a bounded window."""

from collections.abc import Sequence
from typing import NamedTuple

WINDOW_MS = 60_000
MAX_SAMPLES = 8
"""The most samples of one offset: the newest, and older ones about evenly over the window."""


class Sample(NamedTuple):
    at_ms: int
    value: int


def with_sample(
    samples: Sequence[Sample], sample: Sample, *, window_ms: int = WINDOW_MS, max_samples: int = MAX_SAMPLES
) -> tuple[Sample, ...]:
    """Adds a sample, and drops samples that no longer matter for the current rate.

    After a value or a clock that went back (a position was reset, a log was cut) sampling begins anew. The oldest
    sample may be older than the window by up to one step of it: the window is always covered.
    """
    if samples and (sample.value < samples[-1].value or sample.at_ms < samples[-1].at_ms):
        return (sample,)
    kept = list(samples)
    step_ms = window_ms / (max_samples - 2)
    if len(kept) >= 2 and kept[-1].at_ms - kept[-2].at_ms < step_ms:
        # The last sample is too near its predecessor to be kept.
        kept.pop()
    kept.append(sample)
    while len(kept) > 2 and kept[1].at_ms <= sample.at_ms - window_ms:
        del kept[0]
    return tuple(kept[-max_samples:])


def rate_per_s(samples: Sequence[Sample]) -> float | None:
    """The rise of the value in a second, over all samples; None with samples of one time only."""
    if len(samples) < 2 or samples[-1].at_ms <= samples[0].at_ms:
        return None
    return (samples[-1].value - samples[0].value) * 1000 / (samples[-1].at_ms - samples[0].at_ms)

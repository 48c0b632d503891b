"""Where random tests begin.

At a landing every seed is fixed: a change is judged by the same games, schedules and examples as the one before.
`make soak` sets CORDWOOD_FIRST_SEED from the date, so every day plays other ones; the same value plays them again.
"""

import os

FIRST_SEED = int(os.environ.get("CORDWOOD_FIRST_SEED", "0"))

SOAKING = FIRST_SEED != 0


def seeds(count: int) -> range:
    """The seeds of a test that plays `count` of them."""
    return range(FIRST_SEED, FIRST_SEED + count)


def examples(count: int) -> int:
    """The examples of a property: all of them in `make soak`, with other ones every day; a third in `make test`.

    Those of `make test` are the same in every run, so that more of them find a fault of a change and no other.
    """
    return count if SOAKING else min(count, max(count // 3, 12))

"""Games that notice a sabotage are found by trying seeds; the one that told before is tried first.

One game takes the place of up to forty, as long as it tells. Where a change of the games has silenced it, others are
played, and a quicker seed can take its place.
"""

from collections.abc import Iterator


def telling_first(telling: int, most_games: int) -> Iterator[int]:
    yield telling
    yield from (seed for seed in range(most_games) if seed != telling)

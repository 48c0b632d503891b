"""The order of tests, so that the workers of xdist end together and one of them alone starts Spark.

xdist's `worksteal` gives each worker an equal run of neighbours, and who has finished takes from the end of the longest
run. A worker's run begins with its share of the stories, which start processes and mostly wait for them, and goes on
with computations, which keep a core busy and are short: what is taken at the end is short. All tests on the session of
Spark stand at the beginning of the first run: a session takes half a minute of CPU before its first query.

The order is the same in every process, as xdist demands. Without workers it is that of the folders.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from tests.suites import TESTS

STORIES = ("cluster", "crash", "docs", "cli", "interop", "broker", "spark", "etcd", "fuzz", "lifecycle", "deploy")
"""Folders whose tests start processes or wait for clients, those of the longest waits first."""


def dealt(files: Sequence[Path], on_spark: Sequence[bool], workers: int) -> list[int]:
    """The indexes of tests, of which `files` and `on_spark` tell, in the order for so many workers.

    The tests of a file stay together and in their order, except at most one file at the end of each worker's run.
    """
    runs: list[list[int]] = [[] for _ in range(workers)]
    runs[0] += [index for index, here in enumerate(on_spark) if here]
    others = [index for index, here in enumerate(on_spark) if not here]
    stories = sorted((index for index in others if _folder(files[index]) in STORIES), key=lambda at: _rank(files[at]))
    for number, (_, tests) in enumerate(groupby(stories, key=lambda at: files[at])):
        # The last worker gets the first of them, since the first worker begins with Spark.
        runs[-1 - number % workers] += tests
    computations = iter([index for index in others if _folder(files[index]) not in STORIES])
    for run, length in zip(runs, _lengths(len(files), workers), strict=True):
        run += _first(computations, length - len(run))
    return [index for run in runs for index in run] + list(computations)


def _folder(file: Path) -> str:
    return file.relative_to(TESTS).parts[0]


def _rank(file: Path) -> int:
    return STORIES.index(_folder(file))


def _lengths(count: int, workers: int) -> list[int]:
    """How many tests xdist gives to each worker first."""
    lengths: list[int] = []
    for left in range(workers, 0, -1):
        lengths.append((count - sum(lengths)) // left)
    return lengths


def _first(indexes: Iterable[int], count: int) -> list[int]:
    return [index for _, index in zip(range(count), indexes, strict=False)]

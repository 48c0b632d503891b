"""Asks brokers, in a thread, how far editions are behind the ends of their inputs and when retention takes records.

Brokers that do not answer hold up this thread alone. A look is bounded by the patience of its client; values are
replaced whole after each look, and those of a look that failed are none.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cordwood.client.bootstrap import Bootstrap
from cordwood.client.cluster import EARLIEST, LATEST, MAX_TIMESTAMP, Cluster, Isolation
from cordwood.client.errors import ClientError
from cordwood.lag.client_forecast import ClientForecasts, Forecast, LogFacts
from cordwood.lag.data_loss import RULING_SETTINGS, RetentionRules
from cordwood.metrics import pipeline_names as names
from cordwood.metrics.exposition import Labelled
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.topic_settings import resolve
from cordwood.records.batch import batches_in
from cordwood.spark.monitoring.counts import Values, Who

Position = Callable[[], Mapping[TopicPartition, int] | None]
"""Reads the place of an edition, or of a query: empty before its first batch, None if it is not known now."""

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 15.0
PATIENCE_MS: Final = 5_000
"""How long one question waits for brokers that do not answer."""
MAX_TIMESTAMPS: Final = 64
"""The most first unread records of an edition that one look reads, for their timestamps."""


@dataclass
class _Watched:
    """An edition whose inputs are watched."""

    position: Position
    forecasts: ClientForecasts = field(default_factory=ClientForecasts)
    timestamps: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    """Timestamps of first unread records, which stay while the edition stands still."""
    found: Mapping[TopicPartition, Forecast] | None = None
    """None: the place was not known at the last look, or the brokers did not answer."""
    has_looked: bool = False


class InputWatch:
    """Looks at all editions in turn. `watch` and `forget` may be called from any thread."""

    def __init__(self, bootstrap: Bootstrap, *, every_s: float = LOOK_EVERY_S) -> None:
        self._settings = bootstrap.settings(
            connect_timeout_ms=PATIENCE_MS,
            request_timeout_ms=PATIENCE_MS,
            retry_timeout_ms=PATIENCE_MS,
        )
        self._every_s = every_s
        self._watched: dict[Who, _Watched] = {}
        self._lock = threading.Lock()
        self._soon = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="cordwood-input-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread after the look under way. Returns at once."""
        self._closed = True
        self._soon.set()

    def watch(self, who: Who, position: Position) -> None:
        """`position` is called in the thread."""
        with self._lock:
            if who not in self._watched:
                self._watched[who] = _Watched(position)
                self._soon.set()

    def forget(self, who: Who) -> None:
        with self._lock:
            self._watched.pop(who, None)

    def values(self) -> Values:
        with self._lock:
            looked = [(who, each.found) for who, each in sorted(self._watched.items()) if each.has_looked]
        rows = [
            ((*who, place.topic, str(place.partition)), each)
            for who, found in looked
            for place, each in sorted((found or {}).items())
        ]
        return {
            names.WATCHED: [(who, found is not None) for who, found in looked],
            names.LAG: [(labels, each.lag.lag_records or 0) for labels, each in rows],
            names.LAG_SECONDS: [
                (labels, each.lag.lag_ms / 1000) for labels, each in rows if each.lag.lag_ms is not None
            ],
            names.TIME_TO_LOSS: _times_to_loss(rows),
            names.LOST: [(labels, each.lag.lost_records) for labels, each in rows],
        }

    # In the thread

    def _work(self) -> None:
        cluster = Cluster(self._settings)
        try:
            while not self._closed:
                with self._lock:
                    present = list(self._watched.values())
                for watched in present:
                    self._look(cluster, watched)
                self._soon.wait(self._every_s)
                self._soon.clear()
        finally:
            cluster.close()

    def _look(self, cluster: Cluster, watched: _Watched) -> None:
        found: Mapping[TopicPartition, Forecast] | None = None
        try:
            position = watched.position()
            if position is not None and not position:
                return  # no batch is done yet
            if position is not None:
                found = _forecasts(cluster, watched, position)
        except (ClientError, OSError) as failure:
            # The brokers are away: the next look asks again.
            _log.debug("the inputs of a pipeline are not known now: %s", failure)
        except Exception:
            # The thread goes on: without it the values of all pipelines would stay as they are, and look sound.
            _log.exception("the inputs of a pipeline are not known now")
        with self._lock:
            watched.found, watched.has_looked = found, True


def _forecasts(
    cluster: Cluster, watched: _Watched, position: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Forecast]:
    topics = sorted({place.topic for place in position})
    starts = cluster.list_offsets(dict.fromkeys(position, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(position, LATEST), Isolation.READ_COMMITTED)
    newest = cluster.list_offsets(dict.fromkeys(position, MAX_TIMESTAMP))
    sizes = cluster.log_sizes(topics)
    rules = {topic: _rules(cluster.describe_configs(topic)) for topic in {place.topic for place in ends}}
    now_ms = int(time.time() * 1000)
    unread = {
        place: max(offset, starts[place].offset)
        for place, offset in position.items()
        if place in starts and place in ends and max(offset, starts[place].offset) < ends[place].offset
    }
    watched.timestamps = _timestamps(cluster, unread, watched.timestamps)
    found = {}
    for place in sorted(ends.keys() & starts.keys()):
        newest_ms = newest[place].timestamp_ms if place in newest else -1
        facts = LogFacts(starts[place].offset, ends[place].offset, sizes.get(place), newest_ms)
        first_ms = watched.timestamps.get((place, unread.get(place, -1)), -1)
        found[place] = watched.forecasts.judge(
            (place.topic, place.partition),
            position[place],
            facts,
            rules[place.topic],
            first_unread_ms=first_ms,
            now_ms=now_ms,
        )
    return found


def _rules(texts: Mapping[str, str]) -> RetentionRules:
    return RetentionRules.of(resolve({name: texts[name] for name in RULING_SETTINGS if name in texts}, {}))


def _timestamps(
    cluster: Cluster, unread: Mapping[TopicPartition, int], known: Mapping[tuple[TopicPartition, int], int]
) -> dict[tuple[TopicPartition, int], int]:
    """The timestamps of these records, those that are known from an earlier look and some more."""
    found = {each: known[each] for each in unread.items() if each in known}
    missing = [each for each in sorted(unread.items()) if each not in found]
    for place, offset in missing[:MAX_TIMESTAMPS]:
        fetched = cluster.fetch(place, offset, max_bytes=1, max_wait_ms=0)
        for _, header in batches_in(fetched.records):
            found[place, offset] = header.base_timestamp if header.record_count else header.max_timestamp
            break
    return found


def _times_to_loss(rows: Sequence[tuple[tuple[str, ...], Forecast]]) -> Labelled:
    return [
        (labels, math.inf if each.lag.time_to_data_loss_ms is None else each.lag.time_to_data_loss_ms / 1000)
        for labels, each in rows
        if each.foreseen
    ]

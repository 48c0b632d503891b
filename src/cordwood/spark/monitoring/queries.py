"""Metrics of plain queries, for Prometheus: a listener that a session gets in one line.

    spark.streams.addListener(QueryMetrics("127.0.0.1:9405", "localhost:9092"))

The metrics have the names of those of pipelines, so one set of alarms serves both: the label `pipeline` is the query's
name, the label `edition` is `query`. Spark tells the listener of batches and ends; lag and time to data loss are asked
of the brokers, also while a query is idle or has failed.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pyspark.sql.streaming.listener import StreamingQueryListener

from cordwood.client.bootstrap import Bootstrap
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.monitoring.counts import Counts, Values, Who, values_of
from cordwood.spark.monitoring.endpoint import Endpoint
from cordwood.spark.monitoring.inputs import LOOK_EVERY_S, InputWatch
from cordwood.spark.source.offsets import from_spark

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
    )

QUERY: Final = "query"
"""The label `edition` of a query."""
SINK: Final = "sink"
"""The label `output` of a query: Spark does not tell the name of a sink's topic."""
_NO_VERSION: Final = {"version": ""}


class QueryMetrics(StreamingQueryListener):
    """Answers Prometheus at `address` for all queries of the sessions that have it as a listener.

    `bootstrap_servers` names the brokers of the topics that the queries read: by their addresses, or by the settings
    of a client on librdkafka, with TLS and a log-in. Listens from its construction until `close`, or the end of the
    process. Raises WrongAddress, and ValueError for settings that cannot be obeyed.
    """

    def __init__(
        self, address: str, bootstrap_servers: str | Mapping[str, str], *, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        """Names of queries by their ids: Spark tells the end of a query by its id alone."""
        self._counts: dict[Who, Counts] = {}
        self._positions: dict[Who, Mapping[TopicPartition, int]] = {}
        self._inputs = InputWatch(Bootstrap.of(bootstrap_servers), every_s=look_every_s)
        self._endpoint = Endpoint(address)
        self._endpoint.open(self._values)
        self._inputs.start()

    @property
    def url(self) -> str:
        return self._endpoint.url

    def close(self) -> None:
        """Answers no longer."""
        self._inputs.close()
        self._endpoint.close()

    # Spark's events

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        with self._lock:
            counts = self._counts_of(self._named(event.id, event.name))
            counts.restarts += counts.failed
            counts.heard({"event": "started", **_NO_VERSION})

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        progress = event.progress
        read = _position(progress.sources)
        rows_out = progress.sink.numOutputRows
        with self._lock:
            who = self._named(progress.id, progress.name)
            self._counts_of(who).heard(
                {
                    "event": "batch",
                    **_NO_VERSION,
                    "at_ms": int(time.time() * 1000),
                    "duration_ms": progress.batchDuration,
                    "rows_in": progress.numInputRows,
                    "too_late": sum(each.numRowsDroppedByWatermark for each in progress.stateOperators),
                    "rows_out": {SINK: rows_out} if rows_out >= 0 else {},  # -1: foreachBatch does not tell
                }
            )
            self._positions[who] = read
        if read:
            self._inputs.watch(who, partial(self._positions.get, who))

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:
        pass

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        with self._lock:
            name = self._names.pop(str(event.id), None)
            who = _who(event.id, name)
            if event.exception is not None:
                self._counts_of(who).heard({"event": "failed"})
            elif name is not None:
                self._counts_of(who).heard({"event": "ended"})
            else:
                # Queries without a name come and go in a notebook: their values would add up.
                self._counts.pop(who, None)
                self._positions.pop(who, None)
        if event.exception is None and name is None:
            self._inputs.forget(who)

    def _named(self, query_id: UUID, name: str | None) -> Who:
        if name is not None:
            self._names[str(query_id)] = name
        return _who(query_id, name)

    def _counts_of(self, who: Who) -> Counts:
        return self._counts.setdefault(who, Counts())

    def _values(self) -> Values:
        with self._lock:
            counted = values_of(self._counts.items())
        return {**counted, **self._inputs.values()}


def _who(query_id: UUID, name: str | None) -> Who:
    return Who(name or str(query_id), QUERY)


def _position(sources: "Sequence[SourceProgress]") -> dict[TopicPartition, int]:
    """The place up to which all sources of a query have read; a partition that several read counts with the least."""
    found: dict[TopicPartition, int] = {}
    for source in sources:
        try:
            ends = from_spark(json.loads(source.endOffset)) if source.endOffset else {}
        except (ValueError, AttributeError):
            continue  # another kind of source
        for place, offset in ends.items():
            found[place] = min(offset, found.get(place, offset))
    return found

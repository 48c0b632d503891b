"""The common outputs of two editions, compared: in this process if they are small, else on one Spark session."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cordwood.cli.pipeline.options import check_spark_is_installed
from cordwood.cli.pipeline.quiet_spark import quiet_session
from cordwood.cli.terminal.doing import Doing
from cordwood.pipelines.comparison.in_process import compare_tables_here, compare_topics_here, tables_fit, topics_fit
from cordwood.pipelines.comparison.on_spark import Comparison, compare, compare_topics
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.formats.places import refusing_failures_of
from cordwood.pipelines.formats.table_formats import snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cordwood.client.bootstrap import Bootstrap

_ROWS_IN_A_MOMENT: Final = 20_000


@dataclass
class Compared:
    outputs: list[Comparison] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    """table or topic, for each of `outputs`."""
    unwritten: list[str] = field(default_factory=list)
    """Outputs that one of the two editions has not written yet."""

    @property
    def is_equal(self) -> bool:
        return not self.unwritten and all(each.is_equal for each in self.outputs)


def compared(state: PipelineState, live: Edition, fresh: Edition, bootstrap: "Bootstrap", samples: int) -> Compared:
    """Compares the outputs of two editions. Outputs that both editions share are not compared."""
    with Doing() as doing:
        return _Comparing(state, live, fresh, bootstrap, samples, doing).all()


class _Comparing:
    def __init__(
        self, state: PipelineState, live: Edition, fresh: Edition, bootstrap: "Bootstrap", samples: int, doing: Doing
    ) -> None:
        self._state = state
        self._live = live
        self._fresh = fresh
        self._bootstrap = bootstrap
        self._samples = samples
        self._doing = doing
        self._spark: SparkSession | None = None

    def all(self) -> Compared:
        found = Compared()
        for table, facts in self._live.tables.items():
            if not facts.shared and table in self._fresh.tables:
                self._add(found, "table", table, self._table(table))
        pairs = {
            name: (topic, self._fresh.topics[name])
            for name, topic in self._live.topics.items()
            if self._fresh.topics.get(name, topic) != topic
        }
        if pairs:
            from cordwood.administration.connection import reach

            reach(self._bootstrap)
        for name, topics in pairs.items():
            self._add(found, "topic", name, self._topic(name, topics))
        return found

    def _add(self, found: Compared, kind: str, name: str, comparison: Comparison | None) -> None:
        if comparison is None:
            found.unwritten.append(f"{kind} {name}")
        else:
            found.outputs.append(comparison)
            found.kinds.append(kind)

    def _table(self, table: str) -> Comparison | None:
        key = self._live.tables[table].key
        places = [self._state.table_directory(each, table) for each in (self._live, self._fresh)]
        with refusing_failures_of(places[0], "read"):
            taken = [
                snapshot(place, each.tables[table].format)
                for place, each in zip(places, (self._live, self._fresh), strict=True)
            ]
            if taken[0] is None or taken[1] is None:
                return None
            if tables_fit(taken[0], taken[1]):
                if taken[0].rows + taken[1].rows > _ROWS_IN_A_MOMENT:
                    self._doing.show(f"Comparing the table {table}: {taken[0].rows:,} and {taken[1].rows:,} rows …")
                return compare_tables_here(table, key, taken[0], taken[1], self._samples)
        spark = self._session()
        self._doing.show(f"Comparing the table {table}: {taken[0].rows:,} and {taken[1].rows:,} rows …")
        return compare(spark, table, key, taken[0], taken[1], self._samples)

    def _topic(self, name: str, topics: tuple[str, str]) -> Comparison | None:
        from cordwood.pipelines.execution.reading_here import topic_ids

        if len(topic_ids(self._bootstrap, topics)) < 2:
            return None
        if topics_fit(topics, self._bootstrap):
            return compare_topics_here(name, topics, self._bootstrap, self._samples)
        spark = self._session()
        self._doing.show(f"Comparing the topics {topics[0]} and {topics[1]} …")
        return compare_topics(spark, name, topics, self._bootstrap, self._samples)

    def _session(self) -> "SparkSession":
        if self._spark is None:
            check_spark_is_installed()
            self._doing.show("Starting Java and Spark …")
            self._spark = quiet_session(f"compare {self._state.name}", {})
        return self._spark

"""A directory with one pipeline's file, run again and again in this process against a real log."""

import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from pyspark.sql import SparkSession
from tests.spark.conftest import Record

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.checkpoint import committed_position
from cordwood.pipelines.editions.editions import Edition
from cordwood.pipelines.editions.events import Event
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.execution.reading_here import records_behind
from cordwood.pipelines.execution.replaying import edition_for, replay
from cordwood.pipelines.execution.running import Running, start
from cordwood.pipelines.execution.topics import prepare_topics
from cordwood.pipelines.formats.table_formats import rows_of, snapshot

Events = list[dict[str, Any]]


class Workshop:
    """A directory with one pipeline's file, run again and again in this process."""

    def __init__(self, directory: Path, spark: SparkSession, bootstrap: str) -> None:
        self.file = directory / "pipeline.py"
        self.project = Project(directory / "project")
        self.spark = spark
        self.bootstrap = bootstrap
        self.brokers = Bootstrap(bootstrap)
        self.told: Events = []
        """The events of all runs and replays."""

    def write(self, content: str) -> None:
        self.file.write_text(
            "from cordwood.pipelines import *\nfrom pyspark.sql import functions as F\n" + dedent(content)
        )

    def run(self, **options: Any) -> Events:
        """Runs the pipeline over the present log, and returns the events of its batches."""
        before = len(self.told)
        running = start(
            load_pipeline(self.file),
            self.spark,
            bootstrap_servers=self.bootstrap,
            directory=self.project.directory,
            once=True,
            tell=self.tell,
            **options,
        )
        running.wait()
        return [event for event in self.told[before:] if event["event"] == "batch"]

    def replay(self, *, starting: str = "earliest", fresh: bool = False) -> Edition:
        """Replays the present file over history into an edition beside the live one, until it has caught up."""
        pipeline = load_pipeline(self.file)
        state = self.project.state(pipeline.name)
        edition = edition_for(self.project, state, pipeline, starting=starting, fresh=fresh, now_ms=0)
        prepare_topics(pipeline, state, edition, self.brokers)
        topics = [topic.name for topic in pipeline.inputs.values()]

        def begin(once: bool) -> Running:
            again = state.edition(edition.name)
            return Running(pipeline, state, again, self.spark, bootstrap=self.brokers, once=once, tell=self.tell)

        def behind() -> int:
            return records_behind(self.brokers, topics, committed_position(state.checkpoint(edition.name)))

        replay(begin, state, edition, follow=False, behind=behind, batch_rows=0, tell=self.tell)
        return state.edition(edition.name)

    def tell(self, event: Event) -> None:
        self.told.append(dict(event))

    def forget_commit(self, pipeline: str, batch: int) -> None:
        """Removes the commit of a batch, as if the process had been killed after the last output was written."""
        for path in self.project.state(pipeline).checkpoint(self.edition(pipeline)).glob(f"commits/*{batch}*"):
            path.unlink()

    def edition(self, pipeline: str) -> str:
        return self.project.state(pipeline).live_edition().name

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        found = self.project.live_table(table)
        taken = snapshot(found.path, found.edition.tables[table].format)
        rows = [] if taken is None else [tuple(row) for row in rows_of(self.spark, taken).collect()]
        return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def orders(numbers: Sequence[int], partition: int = 0) -> list[Record]:
    return [
        Record(json.dumps({"id": f"o{number}", "amount": number}).encode(), f"o{number}".encode(), partition)
        for number in numbers
    ]

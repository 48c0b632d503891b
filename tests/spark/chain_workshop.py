"""Pipelines in a row, replayed together and swapped as one, in this process."""

import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.pipeline_workshop import Workshop

from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.checkpoint import committed_position
from cordwood.pipelines.editions.downstream import Planned, begun_set, with_downstream
from cordwood.pipelines.editions.edition_sets import EditionSet
from cordwood.pipelines.editions.following import bound
from cordwood.pipelines.editions.set_swapping import roll_back_together, swap_together
from cordwood.pipelines.execution.reading_here import records_behind
from cordwood.pipelines.execution.replaying import replay
from cordwood.pipelines.execution.running import Running
from cordwood.pipelines.execution.topics import prepare_topics


class Chain:
    """Pipelines in one project, each after the one that it reads. `files` are templates by the part's name."""

    def __init__(
        self, directory: Path, spark: SparkSession, bootstrap: str, topic: str, files: Mapping[str, str], **facts: str
    ) -> None:
        self.topic, self.name = topic, f"p-{topic[-6:]}"
        self.shops: dict[str, Workshop] = {}
        self._files = files
        self._facts = {"name": self.name, "topic": topic, **facts}
        self.root, *_ = files
        for part in files:
            (directory / part).mkdir()
            self.shops[part] = Workshop(directory / part, spark, bootstrap)
            self.shops[part].project = self.shops[self.root].project
            self.write(part, 1)
        self.project = self.shops[self.root].project

    def write(self, part: str, version: int) -> None:
        self.shops[part].write(self._files[part].format(version=version, **self._facts))

    def run(self) -> None:
        for shop in self.shops.values():
            shop.run()

    def replay_downstream(self) -> EditionSet:
        """What `replay --downstream` does, in this process."""
        shop = self.shops[self.root]
        root = load_pipeline(shop.file)
        planned = with_downstream(self.project, Planned(root, shop.file))
        made = begun_set(self.project, root.name, planned, fresh=False, now_ms=int(time.time() * 1000))
        for member, each in zip(made.members, planned, strict=True):
            self.replay(shop, member.edition, each)
        return made

    def replay(self, shop: Workshop, name: str, planned: Planned) -> None:
        state = self.project.state(planned.pipeline.name)
        edition = state.edition(name)
        pipeline = bound(self.project, planned.pipeline, edition)
        prepare_topics(pipeline, state, edition, shop.brokers)

        def begin(once: bool) -> Running:
            again = state.edition(name)
            return Running(
                planned.pipeline,
                state,
                again,
                shop.spark,
                bootstrap=shop.brokers,
                once=once,
                tell=shop.tell,
            )

        def behind() -> int:
            position = committed_position(state.checkpoint(name))
            return records_behind(shop.brokers, [topic.name for topic in pipeline.inputs.values()], position)

        replay(begin, state, edition, follow=False, behind=behind, batch_rows=0, tell=shop.tell)

    def swap(self, member: str) -> None:
        state = self.project.state(f"{self.name}-{member}")
        swap_together(self.project, state, None, force=False, skip_effects=False, timeout_s=10)

    def rollback(self, member: str) -> None:
        state = self.project.state(f"{self.name}-{member}")
        roll_back_together(self.project, state, skip_effects=False, timeout_s=10)

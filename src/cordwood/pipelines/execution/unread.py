"""How many records an edition has not read yet, by the ends of the logs now.

The lag that a batch tells is of the time of that batch. An edition that stands still, or whose input another pipeline
has swapped away, is behind by more.
"""

from cordwood.client.bootstrap import Bootstrap
from cordwood.client.cluster import Cluster
from cordwood.pipelines.editions.checkpoint import committed_position
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.positions import Positions, ahead, distance, furthest
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.execution.reading_here import committed_range

_PATIENCE_MS = 5_000
"""How long brokers that do not answer are asked: a person waits for the answer."""


def unread(project: Project, state: PipelineState, edition: Edition, bootstrap: Bootstrap) -> int | None:
    """Committed records that the edition has not read, also in topics that it is still to go over to; None before its
    first run. Raises ClientError if no broker answers."""
    found = unread_by_topic(project, state, edition, bootstrap)
    return None if found is None else sum(found.values())


def unread_by_topic(
    project: Project, state: PipelineState, edition: Edition, bootstrap: Bootstrap
) -> dict[str, int] | None:
    """What `unread` counts, by the topic in which the edition is now."""
    position = committed_position(state.checkpoint(edition.name))
    topics = set(position or edition.input_ids)
    if not topics:
        return None
    ways = {
        each.topic: _ways_on(project, each.pipeline, each.output, each.switches)
        for each in edition.followed
        if not project.sets.reads_beside(state.name, edition.name, each)
    }
    wanted = topics | {entered for topic in topics for _, entered, _ in ways.get(topic, [])}
    patient = bootstrap.settings(retry_timeout_ms=_PATIENCE_MS, request_timeout_ms=_PATIENCE_MS)
    with Cluster(patient) as cluster:
        starts, ends = committed_range(cluster, wanted)
    counts = {}
    for topic in topics:
        here, at, count = topic, {topic: position.get(topic, {})}, 0
        for leaves_at, entered, enters_at in ways.get(topic, []):
            count += _between(at, {here: leaves_at}, starts)
            here, at = entered, {entered: enters_at}
        counts[topic] = count + _between(at, {here: ends.get(here, {})}, starts)
    return counts


def _between(at: Positions, end: Positions, starts: Positions) -> int:
    here = {topic: starts.get(topic, {}) for topic in end}
    return distance(ahead(end, furthest(at, here)))


def _ways_on(
    project: Project, pipeline: str, output: str, taken: int
) -> list[tuple[dict[int, int], str, dict[int, int]]]:
    """The steps that a reader has before it: where it leaves, and where it enters which topic."""
    live = project.state(pipeline).live()
    steps = [] if live is None else [(switch.steps or {}).get(output) for switch in live.switches[taken:]]
    return [(dict(each.leaves_at), each.enters, dict(each.enters_at)) for each in steps if each is not None]

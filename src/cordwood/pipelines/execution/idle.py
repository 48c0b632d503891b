"""Tells without Spark that a run or a requeue would find nothing to do, which spares the start of Spark."""

from typing import Final

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.editions.checkpoint import committed_position, unfinished_batch
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.positions import ahead, distance
from cordwood.pipelines.editions.requeue_plan import OffsetSet, read_plan
from cordwood.pipelines.execution.legs import Route
from cordwood.pipelines.execution.reading_here import committed_records, log_ends, log_starts, topic_ids
from cordwood.pipelines.rows.quarantine import PREFIX

_MAX_QUARANTINED: Final = 20_000
"""With more offsets in the quarantine topic, reading them takes as long as starting Spark."""


def has_nothing_to_do(route: Route) -> bool:
    """True only if certain: all that is committed in the log is read, and no batch and no requeue is unfinished. A
    stateful pipeline may have to write out state though nothing came in, a changed definition has to be tried, and a
    swap may lead on to another topic. The caller holds the edition's lock."""
    leg = route.next_leg()
    return leg.is_last and _has_read_all(leg.pipeline, route.state, route.edition, route.bootstrap)


def _has_read_all(pipeline: Pipeline, state: PipelineState, edition: Edition, bootstrap: Bootstrap) -> bool:
    if pipeline.settings.stateful or edition.is_trial or edition.query_id is None:
        return False
    checkpoint = state.checkpoint(edition.name)
    position = committed_position(checkpoint)
    if not position or unfinished_batch(checkpoint) is not None or read_plan(state, edition.name).pending is not None:
        return False
    topics = [topic.name for topic in pipeline.inputs.values()]
    if any(edition.input_ids.get(name) != id_ for name, id_ in topic_ids(bootstrap, topics).items()):
        return False
    ends = log_ends(bootstrap, topics)
    # A position beyond the end of the log is a data loss, which the source reports.
    return set(ends) == set(topics) and not ahead(ends, position) and not ahead(position, ends)


def has_nothing_to_requeue(pipeline: Pipeline, state: PipelineState, edition: Edition, bootstrap: Bootstrap) -> bool:
    """True only if certain: no requeue is unfinished, and every record that the edition has set aside was sent through
    again."""
    plan = read_plan(state, edition.name)
    if plan.pending is not None or edition.query_id is None:
        return False
    topic = pipeline.quarantine_topic
    id_ = topic_ids(bootstrap, [topic]).get(topic)
    if id_ is None:
        return False
    ends, starts = (each(bootstrap, [topic]) for each in (log_ends, log_starts))
    if distance(ahead(ends, starts)) > _MAX_QUARANTINED:
        return False
    # Offsets of a deleted topic mean nothing in the topic that was made in its place.
    done = plan.done if plan.topic_id == id_ else OffsetSet()
    query = edition.query_id.encode()
    for batch in committed_records(topic, bootstrap, ("partition", "offset", "headers")):
        for row in batch.to_pylist():
            told = {header["key"]: header["value"] for header in row["headers"]}
            if told.get(f"{PREFIX}query") == query and (row["partition"], row["offset"]) not in done:
                return False
    return True

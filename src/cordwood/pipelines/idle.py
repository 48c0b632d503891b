"""Whether a run would find nothing to do, told without Spark: an idle `run --once` need not start it."""

from cordwood.pipelines.checkpoint import committed_position, unfinished_batch
from cordwood.pipelines.definition import Pipeline
from cordwood.pipelines.editions import Edition, PipelineState
from cordwood.pipelines.log_ends import log_ends, topic_ids
from cordwood.pipelines.positions import ahead
from cordwood.pipelines.requeue_plan import read_plan


def has_nothing_to_do(pipeline: Pipeline, state: PipelineState, edition: Edition, bootstrap_servers: str) -> bool:
    """Only where it is certain: all that is committed in the log is read, and no batch and no requeue is unfinished.
    State may have to be written out though nothing came in, and a changed definition is to be tried."""
    if pipeline.settings.stateful or edition.is_trial or edition.query_id is None:
        return False
    checkpoint = state.checkpoint(edition.name)
    position = committed_position(checkpoint)
    if not position or unfinished_batch(checkpoint) is not None or read_plan(state, edition.name).pending is not None:
        return False
    topics = [topic.name for topic in pipeline.inputs.values()]
    if any(edition.input_ids.get(name) != id_ for name, id_ in topic_ids(bootstrap_servers, topics).items()):
        return False
    ends = log_ends(bootstrap_servers, topics)
    # A position beyond the end of the log is a loss, for the source to tell of.
    return set(ends) == set(topics) and not ahead(ends, position) and not ahead(position, ends)

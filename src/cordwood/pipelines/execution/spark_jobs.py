"""What Spark's scheduler says about the jobs of one group. Spark names the group of a query's jobs after its run."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext


def waits_for_cores(context: "SparkContext", group: str) -> bool:
    """True if the group has jobs under way, and none of their tasks runs: tasks of others have all cores."""
    tracker = context.statusTracker()
    of_group = set(tracker.getJobIdsForGroup(group)) & set(tracker.getActiveJobsIds())
    if not of_group:
        return False
    jobs = [tracker.getJobInfo(job) for job in of_group]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return not any(stage.numActiveTasks for stage in stages if stage is not None)

"""What Spark's scheduler says about jobs: which wait for cores, and which tasks of a failed one passed or failed.

Spark names the group of a query's jobs after its run. Status comes from the store behind Spark's UI, which is there
without the UI, too, and learns of events a moment after they happen.
"""

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark import SparkContext

_GROUP: Final = "spark.jobGroup.id"
_TOLD_WITHIN_S: Final = 2.0
_LOOK_S: Final = 0.02
_MOST_TASKS: Final = 10_000


def waits_for_cores(context: "SparkContext", group: str) -> bool:
    """True if the group has jobs under way, and none of their tasks runs: tasks of others have all cores."""
    tracker = context.statusTracker()
    of_group = set(tracker.getJobIdsForGroup(group)) & set(tracker.getActiveJobsIds())
    if not of_group:
        return False
    jobs = [tracker.getJobInfo(job) for job in of_group]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return not any(stage.numActiveTasks for stage in stages if stage is not None)


class Tasks(NamedTuple):
    """The tasks of a stage that failed, by their numbers."""

    failed: frozenset[int]
    passed: frozenset[int]


class NewJobs:
    """The jobs that the calling thread starts from now on."""

    def __init__(self, context: "SparkContext") -> None:
        self._store: Any = context._jsc.sc().statusStore()
        self._tracker = context.statusTracker()
        self._group = context.getLocalProperty(_GROUP)
        self._before = frozenset(self._tracker.getJobIdsForGroup(self._group))

    def tasks_of_failure(self, count: int) -> Tasks | None:
        """The tasks of the stage by which a job failed; None if that stage has not as many tasks as `count`, or nothing
        is known of it."""
        deadline = time.monotonic() + _TOLD_WITHIN_S
        while time.monotonic() < deadline:
            for stage in self._failed_stages():
                return self._tasks(stage) if stage.numTasks() == count else None
            time.sleep(_LOOK_S)
        return None

    def _failed_stages(self) -> list[Any]:
        found = []
        for number in frozenset(self._tracker.getJobIdsForGroup(self._group)) - self._before:
            job = self._tracker.getJobInfo(number)
            if job is not None and job.status == "FAILED":
                stages = [self._stage(stage) for stage in job.stageIds]
                found += [stage for stage in stages if stage is not None and stage.status().toString() == "FAILED"]
        return found

    def _stage(self, number: int) -> Any:
        """A stage's last attempt; None if there was none."""
        from py4j.protocol import Py4JJavaError

        try:
            return self._store.lastStageAttempt(number)
        except Py4JJavaError:
            return None

    def _tasks(self, stage: Any) -> Tasks:
        tasks = self._store.taskList(stage.stageId(), stage.attemptId(), _MOST_TASKS)
        by_status: dict[str, set[int]] = {}
        for each in (tasks.apply(index) for index in range(tasks.size())):
            by_status.setdefault(each.status(), set()).add(each.index())
        failed = frozenset(by_status.get("FAILED", ()))
        return Tasks(failed, frozenset(by_status.get("SUCCESS", ())) - failed)

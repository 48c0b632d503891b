"""The one Spark of all pipelines that a process serves, and a session of its own for each of them.

Sessions share the JVM, the cores and the Python workers; settings of Spark's SQL are a session's own. Settings that
Spark takes only at its start are those that the pipelines declare. A pipeline that asks for another value is refused:
it would run with settings that its author has ruled out.
"""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    # Jobs of different pipelines take turns. The default gives all cores to the job that came first.
    "spark.scheduler.mode": "FAIR",
}


class SharedSpark:
    def __init__(self, java_died: Callable[[], None]) -> None:
        self._java_died = java_died
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def session_for(self, pipeline: Pipeline, start_settings: Mapping[str, str]) -> "SparkSession":
        """A session for a query that the calling thread starts. The first call starts Spark, with these settings."""
        from cordwood.pipelines.execution.sessions import widen_shuffles

        with self._lock:
            if self._session is None:
                self._session = self._start(start_settings)
                self._warm_up(self._session, pipeline)
            shared = self._session
        # A query inherits the pool of the thread that starts it.
        shared.sparkContext.setLocalProperty("spark.scheduler.pool", pipeline.name)
        session = shared.newSession()
        context = shared.sparkContext.getConf()
        for name, value in pipeline.settings.spark.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
            elif context.get(name) != str(value):
                raise WrongState(
                    f"{pipeline.name} asks for {name}={value}, and the Spark that it shares with others runs with "
                    f"{context.get(name) or 'its default'}",
                    "Spark takes this setting at its start, once for all: give all pipelines the same value; or "
                    f"`cordwood pipeline run {pipeline.name}` runs it in a Spark of its own",
                )
        widen_shuffles(session, pipeline.settings.spark)
        return session

    def _start(self, settings: Mapping[str, str]) -> "SparkSession":
        from cordwood.pipelines.execution.sessions import pipeline_session

        session = pipeline_session("cordwood pipelines", {**SETTINGS, **settings})
        session.sparkContext.setLogLevel("WARN")
        gateway: Any = session.sparkContext._gateway
        java = getattr(gateway, "proc", None)
        if java is not None:

            def watch() -> None:
                java.wait()
                self._java_died()

            threading.Thread(target=watch, name="cordwood-java", daemon=True).start()
        return session

    def _warm_up(self, session: "SparkSession", pipeline: Pipeline) -> None:
        from cordwood.pipelines.execution.sessions import warm_up

        warm_up(session, pipeline)

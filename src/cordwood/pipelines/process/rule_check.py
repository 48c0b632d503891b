"""A process that checks a definition's rules before a replay makes an edition of it: `python -m …rule_check ORDERS`.

Only Spark can tell whether a condition parses and which columns the function's rows have. A replay makes all editions
of a set before the first worker starts, and a wrong rule of one must leave none of them. So a small Spark of its own
looks first, and is gone before the worker starts. The worker of a first run checks the rules itself (`worker.py`).
"""

import json
import os
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import Refusal, shown_path
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.events import Event, line_of
from cordwood.pipelines.process.spark_failures import as_told
from cordwood.pipelines.process.worker_process import WorkerProcess

_SPARK: Final = {"spark.master": "local[1]", "spark.ui.enabled": "false"}
_LAST_WORDS: Final = 2_000


@dataclass(frozen=True)
class Orders:
    file: str
    pipeline: str
    beside: str
    """The directory of the author's file, whose modules the definition imports."""
    events: int = -1
    """The descriptor to write the failure to."""


def failure_of_rules(pipeline: Pipeline, *, beside: Path, python_bytes: int) -> Event | None:
    """The failure that rows of this definition could not be judged with, in the words of a run; None if its rules are
    good. Starts Spark if the definition has rules."""
    if not pipeline.rules:
        return None
    orders = Orders(pipeline.site.file, pipeline.name, str(beside))
    with tempfile.TemporaryDirectory(prefix="cordwood-rules-") as directory:
        log = Path(directory) / "spark.log"
        with WorkerProcess(
            lambda events: [sys.executable, "-m", __name__, json.dumps(asdict(replace(orders, events=events)))],
            log,
            python_bytes=python_bytes,
        ) as process:
            failure = next(iter(list(process.events())), None)
            code = process.wait()
        if failure is None and code != 0:
            message = f"the process that checks the rules of {pipeline.name} ended with exit code {code}"
            hint = log.read_text(errors="replace")[-_LAST_WORDS:].strip()
            return {"event": "failed", "pipeline": pipeline.name, "code": "FAILED", "message": message, "hint": hint}
        return failure


def main(text: str) -> int:
    orders = Orders(**json.loads(text))
    threading.Thread(target=_end_with_the_command, name="cordwood-stop", daemon=True).start()
    try:
        _check(orders)
        return 0
    except Exception as failure:
        if not isinstance(failure, Refusal):
            import traceback

            traceback.print_exc()
        told = as_told(failure, orders.pipeline, "", shown_path(orders.file))
        with os.fdopen(orders.events, "w", encoding="utf-8") as events:
            events.write(line_of({"event": "failed", "pipeline": orders.pipeline, **told.words}) + "\n")
        return 1


def _check(orders: Orders) -> None:
    from cordwood.pipelines.execution.checking_rules import check_rules
    from cordwood.pipelines.execution.sessions import pipeline_session

    pipeline = load_pipeline(Path(orders.file), orders.pipeline, beside=Path(orders.beside))
    check_rules(pipeline, pipeline_session(f"rules of {pipeline.name}", {**pipeline.settings.spark, **_SPARK}))


def _end_with_the_command() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    # The JVM ends when this process does: nothing of its Spark is worth a shutdown.
    os._exit(code)

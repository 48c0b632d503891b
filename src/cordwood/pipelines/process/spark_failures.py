"""Extracts the cause from Spark's failures, and tells which of them another try cannot mend.

An exception in a Python process of Spark, the source's planner or a task, comes back as the text of a Java exception:
the traceback first, then what was raised, then Java's own stack and the query's plan.
"""

import re
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cordwood.pipelines.definition.errors import BatchCutShort, Refusal, StateMisfit, Unusable
from cordwood.spark.sink.protocol import NO_TOPIC

_TRACEBACK: Final = "Traceback (most recent call last):\n"
_AFTER = re.compile(r"\s*(SQLSTATE:|at [\w.$]+\(|===|\Z)")
"""The beginning of the line that follows the raised exception."""
_MODULE = re.compile(r"\A(?:\w+\.)+(?=\w+:)")


_STATE_MISFIT = re.compile(
    r"\b(STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE"
    r"|STATE_STORE_INVALID_(?:CONFIG_AFTER_RESTART|VALUE_SCHEMA_EVOLUTION|VARIABLE_TYPE_CHANGE)"
    r"|(?:STATE_STORE_)?(?:KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE"
    r"|STREAMING_STATEFUL_OPERATOR_(?:NOT_MATCH_IN_STATE_METADATA|MISSING_STATE_DIRECTORY)"
    r"|STREAM_STREAM_JOIN_INCOMPATIBLE_STATE_STORE_CONFIGS)\b"
)
"""Spark's names for a state that another query wrote than the one that reads it."""
_TOPIC_GONE: Final = re.compile(rf"Topic '([^']+)' {NO_TOPIC}")
_NEEDED: Final = ("pyspark", "pyarrow", "deltalake", "numba", "numpy", "pandas", "py4j")
_JAVA_ENDS_WITHIN_S: Final = 2.0
_MAX_MESSAGE_LENGTH: Final = 2_000


class Told(NamedTuple):
    """A failure as the event of a run has it."""

    words: Mapping[str, Any]
    """Code, message, hint and time."""
    is_final: bool
    """Every try would meet it."""


def as_told(failure: Exception, pipeline: str, edition: str, file: str) -> Told:
    """The words for a failure of a run. `file` is the pipeline's, for the hint."""
    refusal = refusal_of(failure, pipeline, edition, file)
    if refusal is not None:
        return Told({"code": refusal.code, "message": refusal.message, "hint": refusal.hint}, is_final=True)
    if isinstance(failure, BatchCutShort):
        hint = f"{failure.hint}; `cordwood pipeline reload {pipeline}` takes a changed {file} into a running `serve`"
        words = {"code": failure.code, "message": str(failure), "hint": hint, "at_ms": int(time.time() * 1000)}
        return Told(words, is_final=False)
    message, hint = (end_of_java(failure) or reason_of(failure))[:_MAX_MESSAGE_LENGTH], ""
    if (gone := _TOPIC_GONE.search(message)) is not None:
        message = f"the topic {gone[1]}, which {pipeline} writes, was deleted while a batch was under way"
        hint = f"`cordwood topic create {gone[1]}` makes an empty one; what was in the deleted one is lost"
    words = {"code": "FAILED", "message": message, "hint": hint, "at_ms": int(time.time() * 1000)}
    return Told(words, is_final=_cannot_be_planned(failure))


def _cannot_be_planned(failure: Exception) -> bool:
    try:
        from pyspark.errors import AnalysisException, ParseException
    except ModuleNotFoundError:
        return True

    return isinstance(failure, AnalysisException | ParseException)


def refusal_of(failure: Exception, pipeline: str, edition: str, file: str) -> Refusal | None:
    """The refusal for a failure that the next try would meet again; None for one that may pass. `file` is the
    pipeline's, for the hint."""
    from cordwood.spark.java import NoJava

    if isinstance(failure, Refusal):
        return failure
    if isinstance(failure, NoJava):
        return Unusable(str(failure))
    if isinstance(failure, ModuleNotFoundError) and (failure.name or "").split(".")[0] in _NEEDED:
        return Unusable(f"{failure.name} is not installed", "in a clone: pip install '.[spark]'")
    misfit = _STATE_MISFIT.search(str(failure))
    if misfit is not None:
        return StateMisfit(
            f"the state of edition {edition} of {pipeline} was built by another query than the function makes now "
            f"({misfit[1]}), and goes on only with the function that built it",
            f"`cordwood pipeline run {pipeline}` goes on with that one; give {file} a new version, and `cordwood "
            f"pipeline replay {file}` builds tables and state anew",
        )
    return None


def end_of_java(failure: Exception) -> str | None:
    """How Spark's Java process ended, if Python's exception is only about the broken connection; else None."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkContext

    if not isinstance(failure, Py4JError | ConnectionError | EOFError) or isinstance(failure, Py4JJavaError):
        return None
    java: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if java is None:
        return None
    try:
        code = java.wait(_JAVA_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        return None
    # A shell between the two reports a signal as 128 plus its number.
    number = -code if code < 0 else code - 128
    if number > 0:
        why = ", by the system if memory ran out" if number == 9 else ""
        return f"Spark's Java process was killed (signal {number}{why})"
    return f"Spark's Java process ended with exit code {code}"


def reason_of(failure: Exception) -> str:
    """The whole message of the exception that was raised in Python; else the first line of the failure itself."""
    text = str(failure)
    raised: list[str] = []
    if _TRACEBACK in text:
        for line in text.rpartition(_TRACEBACK)[2].splitlines():
            if raised and _AFTER.match(line):
                break
            if raised or not line.startswith(" "):
                raised.append(line.strip())
    if raised:
        return _MODULE.sub("", " ".join(raised))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(failure).__name__}: {lines[0] if lines else ''}"

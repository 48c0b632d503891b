"""Tells which failures of a batch its rows may be to blame for, and what was wrong with them."""

import re
from typing import Final

_MAX_ERROR_LENGTH: Final = 500
_OF_THE_LOG: Final = re.compile(r"^\s*cordwood\.(client|records|spark)\.[\w.]+: ", re.MULTILINE)
"""Matches the last line of a traceback of our source or sink, which fails without a broker."""
_CANCELLED: Final = "SPARK_JOB_CANCELLED"
"""In the failure of a job that was cancelled, because its batch is overdue or its query is being stopped."""
_PYTHON_EXCEPTION: Final = re.compile(r"[A-Za-z_]\w*(Error|Exception|Warning)\b")


def may_be_the_rows_fault(failure: Exception) -> bool:
    """True for failures of Spark's tasks; False for those of planning, the driver, Python itself and the log."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    text = str(failure)
    if isinstance(failure, AnalysisException | ParseException) or _CANCELLED in text or _OF_THE_LOG.search(text):
        return False
    return isinstance(failure, PySparkException | Py4JJavaError)


def in_words(failure: Exception) -> str:
    """The most telling line of a failure: a Python function's own exception, else Spark's first line."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_EXCEPTION.match(line)]
    return (python[-1:] or lines or [type(failure).__name__])[0][:_MAX_ERROR_LENGTH]

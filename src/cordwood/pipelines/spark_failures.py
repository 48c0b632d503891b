"""What a failure of Spark is about, without what Spark puts around it.

An exception in a Python process of Spark, the source's planner or a task, comes back as the text of a Java exception:
the traceback first, then what was raised, then Java's own stack and the query's plan.
"""

import re
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last):\n"
_AFTER = re.compile(r"\s*(SQLSTATE:|at [\w.$]+\(|===|\Z)")
"""How the line begins that follows what was raised."""
_MODULE = re.compile(r"\A(?:\w+\.)+(?=\w+:)")


def reason_of(failure: Exception) -> str:
    """What was raised in Python, with all that it says; else the first line of the failure itself."""
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

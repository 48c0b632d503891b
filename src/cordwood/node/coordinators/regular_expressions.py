"""Regular expressions that come from clients: RE2, whose time is linear in the text and whose memory is bounded here.

No expression of a client gets to Python's own `re`, which twenty bytes can keep busy for a day. As in Kafka an
expression has to match the whole name.
"""

from collections.abc import Iterable

from cordwood.model.errors import ErrorCode, ProtocolError

MAX_EXPRESSION_BYTES = 8192
MAX_MEMORY_BYTES = 1 << 20
"""The memory of one compiled expression. An expression that needs more is refused."""


def names_matching(expression: str, names: Iterable[str]) -> list[str]:
    """The names that the expression matches. Raises INVALID_REGULAR_EXPRESSION, with the reason.

    Runs in a thread: ten thousand names take some tens of milliseconds.
    """
    import re2  # few brokers use expressions

    if len(expression.encode()) > MAX_EXPRESSION_BYTES:
        raise ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"The expression is longer than {MAX_EXPRESSION_BYTES} bytes."
        )
    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    try:
        matches = re2.compile(expression, options).fullmatch
    except re2.error as problem:
        reason = problem.args[0].decode(errors="replace")
        raise ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{expression!r} is not a regular expression of RE2: {reason}."
        ) from None
    try:
        return [name for name in names if matches(name.encode()) is not None]
    finally:
        # The library would keep the last 128 expressions with their memory.
        re2.purge()

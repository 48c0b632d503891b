"""What the commands about delegation tokens share: periods, times, and the one place that shows a secret."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import duration_ms

TokenId = Annotated[str, typer.Argument(metavar="ID", help="The token's id.", show_default=False)]


def period_ms(text: str | None, otherwise: int) -> int:
    """Raises Failure."""
    if text is None:
        return otherwise
    try:
        return duration_ms(text)
    except ValueError as reason:
        raise Failure("USAGE", str(reason), "12h, for example", ExitCode.USAGE) from None


def time_of(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")

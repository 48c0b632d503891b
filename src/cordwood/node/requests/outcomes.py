"""Outcomes of changes of the metadata, in the fields of responses."""

from collections.abc import Hashable, Mapping
from typing import TypedDict, TypeVar

from cordwood.cluster.stores.interface import OutcomeUnknown
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.node.loop.reports import Reports

Key = TypeVar("Key", bound=Hashable)
Outcome = TypeVar("Outcome")


class Status(TypedDict, total=False):
    error_code: int
    error_message: str | None


def each_outcome(
    reports: Reports, outcomes: Mapping[Key, Outcome] | Exception, keys: list[Key]
) -> list[tuple[Key, Outcome | ProtocolError]]:
    """Pairs each key with its outcome; if the metadata writer itself failed, each key has that failure."""
    if isinstance(outcomes, Exception):
        reports.failure(outcomes)
        error = ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The metadata store failed: {outcomes}")
        if isinstance(outcomes, OutcomeUnknown):
            error = ProtocolError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Whether the change was made is unknown; describe it before you ask again: {outcomes}",
            )
        return [(key, error) for key in keys]
    return [(key, outcomes[key]) for key in keys]


def status(outcome: object) -> Status:
    """Error code and message of an outcome."""
    if isinstance(outcome, ProtocolError):
        return {"error_code": outcome.code, "error_message": outcome.message}
    return {"error_code": ErrorCode.NONE, "error_message": None}

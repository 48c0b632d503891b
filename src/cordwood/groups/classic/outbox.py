"""The output of a transition: records to append, and answers that wait until those records are committed."""

from collections.abc import Callable
from typing import NamedTuple

from cordwood.model.errors import ErrorCode

Record = tuple[bytes, bytes | None]


class JoinAnswer(NamedTuple):
    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """Member, instance, metadata: for the leader only, which has to assign."""

    def failed(self, error: ErrorCode) -> "JoinAnswer":
        return JoinAnswer(error, self.member_id)


class SyncAnswer(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""

    def failed(self, error: ErrorCode) -> "SyncAnswer":
        return SyncAnswer(error)


JoinTicket = Callable[[JoinAnswer], None]
SyncTicket = Callable[[SyncAnswer], None]


class Outbox:
    """The output of one transition, which its caller settles: append and replay the records, then give the answers."""

    __slots__ = ("joins", "records", "syncs")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.joins: list[tuple[JoinTicket, JoinAnswer]] = []
        self.syncs: list[tuple[SyncTicket, SyncAnswer]] = []

    @property
    def is_empty(self) -> bool:
        return not (self.records or self.joins or self.syncs)

    def settle(self, error: ErrorCode) -> None:
        """Gives every answer; if the records were not committed, the error goes to all instead."""
        for join_ticket, join_answer in self.joins:
            join_ticket(join_answer if error is ErrorCode.NONE else join_answer.failed(error))
        for sync_ticket, sync_answer in self.syncs:
            sync_ticket(sync_answer if error is ErrorCode.NONE else sync_answer.failed(error))

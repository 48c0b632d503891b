"""The check of a request's leader epoch, which leaders and followers make."""

from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode, ProtocolError

UNCHECKED = -1
"""The leader epoch of a peer that does not check."""


def check_epoch(log: Log, leader_epoch: int, asked: int) -> None:
    """Refuses a request in the leader epoch `asked` if the replica is in another one."""
    if asked in (leader_epoch, UNCHECKED):
        return
    if asked < leader_epoch:
        raise ProtocolError(
            ErrorCode.FENCED_LEADER_EPOCH, f"{log.partition} is in leader epoch {leader_epoch}, not {asked}."
        )
    raise ProtocolError(
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"{log.partition} has not reached leader epoch {asked}, it is in {leader_epoch}.",
    )

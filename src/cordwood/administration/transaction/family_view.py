"""Transaction families: their view in commands, and their end."""

import time
from itertools import chain
from typing import Any

from cordwood.administration.asking import ask
from cordwood.administration.brokers import from_every_broker, transaction_coordinator
from cordwood.administration.connection import Connection
from cordwood.client.settings import Address
from cordwood.model.errors import ErrorCode, code_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.families import coordinator_key
from cordwood.spark.checkpoints.plans import without_query_name
from cordwood.wire.apis import ApiKey

_EVERY_BATCH = 2**63 - 1
_AGAIN = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def families(connection: Connection) -> list[dict[str, Any]]:
    """All families of the cluster."""

    def listed_by(address: Address) -> list[dict[str, Any]]:
        answer = ask(address, ApiKey.FAMILY_LIST, 0, {"families": None}, connection.timeout_s)
        if answer.error_code:
            raise Failure(code_name(answer.error_code), f"{address[0]}:{address[1]} cannot list its families")
        return [
            {
                "name": each.name,
                "query": _query_name(connection, address, each.name) if each.last_batch_id >= 0 else None,
                "last_batch_id": None if each.last_batch_id < 0 else each.last_batch_id,
                "decided_ms": None if each.decided_ms < 0 else each.decided_ms,
                "forgotten": each.forgotten,
                "slots": each.slots,
                "joined_slots": each.joined_slots,
                "open_slots": each.open_slots,
                "completing_slots": each.completing_slots,
            }
            for each in answer.families
        ]

    found = chain.from_iterable(from_every_broker(connection, listed_by))
    return sorted(found, key=lambda each: str(each["name"]))


def _query_name(connection: Connection, address: Address, family: str) -> str | None:
    """The name of the Spark query that decided the family's last batch, if it has one. `address` is the family's
    coordinator: a broker lists the families that it coordinates."""
    answer = ask(address, ApiKey.FAMILY_RECALL, 0, {"family": family}, connection.timeout_s)
    return None if answer.error_code else without_query_name(bytes(answer.plan))[1]


def described(connection: Connection, family: str) -> dict[str, Any]:
    for each in families(connection):
        if each["name"] == family:
            return each
    raise Failure(
        "FAMILY_NOT_FOUND",
        f"there is no family {family!r}",
        "`cordwood transaction families` lists the families",
        ExitCode.NOT_FOUND,
    )


def aborted(connection: Connection, family: str, *, forget: bool = False) -> None:
    """Aborts all joined slots, of every batch. Decided batches stay decided."""
    address = transaction_coordinator(connection, coordinator_key(family))
    values = {
        "family": family,
        "batch_id": _EVERY_BATCH,
        "commit": False,
        "winners": [],
        "forget": forget,
        "timeout_ms": int(connection.timeout_s * 500),
    }
    deadline = time.monotonic() + connection.timeout_s
    while True:
        answer = ask(address, ApiKey.FAMILY_DECIDE, 0, values, connection.timeout_s)
        if answer.error_code == 0:
            return
        if answer.error_code not in _AGAIN or time.monotonic() > deadline:
            raise Failure(code_name(answer.error_code), answer.error_message or f"{family} cannot be aborted")
        time.sleep(0.05)

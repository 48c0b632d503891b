"""Transactions: their view in commands, and their abort."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from cordwood.administration.asking import ask, first_answer
from cordwood.administration.brokers import brokers, brokers_that_take_part, from_every_broker, transaction_coordinator
from cordwood.administration.cluster.view import partitions_of
from cordwood.administration.connection import Connection
from cordwood.client.settings import Address
from cordwood.model.coordination import transaction_partition
from cordwood.model.errors import ErrorCode, code_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.init_producer_id import InitProducerId


ENDING = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
"""The states of a transaction whose end is still to come."""
IDS_AT_ONCE = 500
_PAUSE_S = 0.2


def listed(connection: Connection, states: list[str]) -> list[dict[str, Any]]:
    """The transactional ids of the cluster; with `states`, only those in one of these states."""
    filters = {"state_filters": states, "producer_id_filters": []}

    def listed_by(address: Address) -> list[dict[str, Any]]:
        answer = ask(address, ApiKey.LIST_TRANSACTIONS, 0, filters, connection.timeout_s)
        if answer.error_code:
            raise Failure(code_name(answer.error_code), f"{address[0]}:{address[1]} cannot list its transactions")
        if answer.unknown_state_filters:
            raise Failure(
                "USAGE",
                f"there is no state {', '.join(answer.unknown_state_filters)}",
                "states are Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort",
                ExitCode.USAGE,
            )
        ending = [each.transactional_id for each in answer.transaction_states if each.transaction_state in ENDING]
        ages = _ages(address, ending, connection.timeout_s)
        return [
            {
                "transactional_id": each.transactional_id,
                "state": each.transaction_state,
                "producer_id": each.producer_id,
                "open_for_ms": ages.get(each.transactional_id, (None, None))[0],
                "timeout_ms": ages.get(each.transactional_id, (None, None))[1],
            }
            for each in answer.transaction_states
        ]

    found = chain.from_iterable(from_every_broker(connection, listed_by))
    return sorted(found, key=lambda each: str(each["transactional_id"]))


def _ages(address: Address, transactional_ids: list[str], timeout_s: float) -> dict[str, tuple[int, int]]:
    """The age of each of these transactions, and its timeout, from its coordinator."""
    ages = {}
    now_ms = int(time.time() * 1000)
    for first in range(0, len(transactional_ids), IDS_AT_ONCE):
        asked = {"transactional_ids": transactional_ids[first : first + IDS_AT_ONCE]}
        for each in ask(address, ApiKey.DESCRIBE_TRANSACTIONS, 0, asked, timeout_s).transaction_states:
            if not each.error_code and each.transaction_start_time_ms > 0:
                open_for_ms = max(0, now_ms - each.transaction_start_time_ms)
                ages[each.transactional_id] = (open_for_ms, each.transaction_timeout_ms)
    return ages


def listed_of_all(connection: Connection) -> tuple[list[dict[str, Any]], list[int]]:
    """The transactional ids of the cluster, and the partitions of __transaction_state whose coordinators do not answer:
    they may have transactions that are not listed. Coordinators are asked before and after: one that moves in between
    lists nothing."""
    silent = _silent_coordinators(connection)
    found = listed(connection, [])
    return found, silent or _silent_coordinators(connection)


def _silent_coordinators(connection: Connection) -> list[int]:
    """The coordinators that do not answer. Asks again until the connection's timeout: a coordinator loads its state
    after an election."""
    deadline_s = time.monotonic() + connection.timeout_s
    while True:
        _, found = first_answer(
            brokers(connection), lambda asked: partitions_of(asked, [TRANSACTION_STATE_TOPIC], connection.timeout_s)
        )
        silent = set(range(len(found)))
        asked = {"transactional_ids": list(_id_in_each(len(found)).values())}
        for address in brokers_that_take_part(connection).values() if found else ():
            with suppress(Failure):  # a broker that has just ended coordinates nothing
                answer = ask(address, ApiKey.DESCRIBE_TRANSACTIONS, 0, asked, connection.timeout_s)
                for each in answer.transaction_states:
                    if each.error_code in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                        silent.discard(transaction_partition(each.transactional_id, len(found)))
        if not silent or time.monotonic() > deadline_s:
            return sorted(silent)
        time.sleep(_PAUSE_S)


def _id_in_each(partition_count: int) -> dict[int, str]:
    """An unused transactional id for each partition of __transaction_state."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partition_count:
        name = f"cordwood-cli-{number}"
        found.setdefault(transaction_partition(name, partition_count), name)
        number += 1
    return found


def described(connection: Connection, transactional_id: str) -> dict[str, Any]:
    address = transaction_coordinator(connection, transactional_id)
    answer = ask(
        address, ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]}, connection.timeout_s
    )
    (found,) = answer.transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise Failure(
            code_name(found.error_code),
            f"there is no transactional id {transactional_id!r}",
            "`cordwood transaction list` lists the transactional ids",
            ExitCode.NOT_FOUND,
        )
    if found.error_code:
        raise Failure(code_name(found.error_code), f"{transactional_id} cannot be described")
    is_open = found.transaction_start_time_ms > 0 and found.transaction_state == "Ongoing"
    return {
        "transactional_id": transactional_id,
        "state": found.transaction_state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "open_for_ms": max(0, int(time.time() * 1000) - found.transaction_start_time_ms) if is_open else None,
        "partitions": [
            {"topic": topic.topic, "partition": index} for topic in found.topics for index in topic.partitions
        ],
    }


def aborted(connection: Connection, transactional_id: str, timeout_ms: int) -> int:
    """Aborts the open transaction and fences its producer. Returns an epoch: producers with a lower epoch are fenced.

    `timeout_ms` is the timeout that the producer asked for: the broker may refuse a longer one.
    """
    address = transaction_coordinator(connection, transactional_id)
    deadline = time.monotonic() + connection.timeout_s
    while True:
        answer = _init_producer(connection, address, transactional_id, timeout_ms)
        if answer.error_code == 0:
            return int(answer.producer_epoch)
        waits = answer.error_code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not waits or time.monotonic() > deadline:
            raise Failure(code_name(answer.error_code), f"the transaction of {transactional_id} cannot be aborted")
        time.sleep(0.05)


def _init_producer(
    connection: Connection, address: Address, transactional_id: str, timeout_ms: int
) -> InitProducerId.Response:
    values = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    return ask(address, ApiKey.INIT_PRODUCER_ID, 1, values, connection.timeout_s)

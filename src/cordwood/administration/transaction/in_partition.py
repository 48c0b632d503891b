"""Ends a transaction in one partition by a separate marker, if no coordinator ends it.

A coordinator ends a transaction in all of its partitions alike. A marker from elsewhere ends the part in one partition,
and the coordinator may commit the rest: so a transaction that a coordinator still has to end is refused, and so is
every transaction while a coordinator does not answer.
"""

from __future__ import annotations

from typing import NamedTuple

from cordwood.administration.asking import ask
from cordwood.administration.brokers import brokers_that_take_part
from cordwood.administration.connection import Connection
from cordwood.administration.topic.by_state import all_partitions
from cordwood.administration.transaction.hanging import OpenInPartition, open_in, producers_of
from cordwood.administration.transaction.view import ENDING, listed_of_all
from cordwood.client.settings import Address
from cordwood.model.errors import ErrorCode, code_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC
from cordwood.wire.apis import ApiKey


class Place(NamedTuple):
    """The place of an open transaction: a partition, and the offset of its first record there."""

    topic: str
    partition: int
    start_offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def open_at(connection: Connection, place: Place) -> OpenInPartition:
    """The open transaction at this place, which no coordinator will end. Raises Failure."""
    found = _found(_leader(connection, place), place, connection.timeout_s)
    transactions, silent = listed_of_all(connection)
    if silent:
        partitions = ", ".join(map(str, silent))
        raise Failure(
            "COORDINATOR_NOT_AVAILABLE",
            f"coordinators do not answer, and one of them may know the transaction: those of {TRANSACTION_STATE_TOPIC} "
            f"{partitions}",
            "`cordwood cluster status` and the brokers' logs say why",
        )
    for each in transactions:
        if each["producer_id"] == found.producer_id and each["state"] in ENDING:
            name = each["transactional_id"]
            raise Failure(
                "TRANSACTION_HAS_COORDINATOR",
                f"the coordinator of {name} knows the transaction ({each['state']}), and ends it in all its partitions",
                f"`cordwood transaction abort {name}` aborts it",
            )
    return found


def aborted_at(connection: Connection, place: Place, opened: OpenInPartition) -> None:
    """Writes the marker, if the same transaction is still open there. Raises Failure."""
    leader = _leader(connection, place)
    if _found(leader, place, connection.timeout_s)[:5] != opened[:5]:
        raise Failure("TRANSACTION_CHANGED", f"another transaction is open in {place} now", "look again")
    marker = {
        "producer_id": opened.producer_id,
        "producer_epoch": opened.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": place.topic, "partition_indexes": [place.partition]}],
        "coordinator_epoch": max(opened.coordinator_epoch, 0),
        "durable": True,
    }
    answer = ask(leader, ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]}, connection.timeout_s)
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise Failure(
            code_name(code),
            f"{leader[0]}:{leader[1]} takes markers from brokers alone: clients share its listener, or have it for "
            "themselves",
            "give the listener that brokers use among themselves as --bootstrap-server "
            "(`cordwood config describe --broker ID --changed` shows `listeners` and `inter.broker.listener.name`)",
        )
    if code:
        raise Failure(code_name(code), f"the transaction in {place} is not aborted")


def _leader(connection: Connection, place: Place) -> Address:
    states = [each for each in all_partitions(connection, [place.topic]) if each.partition == place.partition]
    if not states:
        raise Failure("UNKNOWN_TOPIC_OR_PARTITION", f"there is no partition {place}", exit_code=ExitCode.NOT_FOUND)
    leader = brokers_that_take_part(connection).get(states[0].leader)
    if leader is None:
        raise Failure("LEADER_NOT_AVAILABLE", f"{place} has no leader now", "`cordwood cluster status` says why")
    return leader


def _found(leader: Address, place: Place, timeout_s: float) -> OpenInPartition:
    answer = producers_of(leader, [(place.topic, place.partition)], timeout_s)
    partition = answer.topics[0].partitions[0]
    if partition.error_code:
        raise Failure(code_name(partition.error_code), partition.error_message or f"{place} cannot be described")
    others = open_in(answer)
    for each in others:
        if each.start_offset == place.start_offset:
            return each
    starts = ", ".join(str(each.start_offset) for each in others)
    raise Failure(
        "NO_SUCH_TRANSACTION",
        f"no transaction is open in {place} from offset {place.start_offset} on",
        f"open transactions begin there at {starts}" if starts else "no transaction is open in the partition",
        ExitCode.NOT_FOUND,
    )

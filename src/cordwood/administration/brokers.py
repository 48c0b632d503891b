"""The brokers of a cluster as clients are told of them, and questions to all of them or to a coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from cordwood.administration.addresses import told_by
from cordwood.administration.asking import NotLetIn, ask, first_answer
from cordwood.administration.connection import Connection
from cordwood.client.settings import Address
from cordwood.model.errors import code_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.wire.apis import ApiKey

_RETRY_PAUSE_S = 0.2

T = TypeVar("T")


def brokers(connection: Connection) -> list[Address]:
    """The addresses of the cluster's brokers, also of those that ended in the last minute: librdkafka knows both."""
    metadata = connection.call(lambda: connection.admin().list_topics(timeout=connection.timeout_s))
    return [connection.address(str(broker.host), int(broker.port)) for _, broker in sorted(metadata.brokers.items())]


def brokers_that_take_part(connection: Connection) -> dict[int, Address]:
    """The addresses of the brokers that serve clients now, by id, as the first broker that answers knows them."""
    _, described = first_answer(brokers(connection), lambda asked: _described_by(asked, connection.timeout_s))
    return described


def _described_by(address: Address, timeout_s: float) -> dict[int, Address]:
    told = ask(address, ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False}, timeout_s)
    if told.error_code:
        raise Failure(code_name(told.error_code), told.error_message or "the broker does not describe the cluster")
    return {
        each.broker_id: told_by(address, each.host, each.port)
        for each in sorted(told.brokers, key=lambda each: each.broker_id)
    }


def from_every_broker(connection: Connection, question: Callable[[Address], T]) -> list[T]:
    """The answers of all brokers. Asks again while one does not answer: the others soon notice that it ended. Raises
    Failure."""
    deadline_s = time.monotonic() + connection.timeout_s
    while True:
        try:
            return [question(address) for address in brokers_that_take_part(connection).values()]
        except NotLetIn:
            raise
        except Failure as failure:
            if failure.exit_code is not ExitCode.NOT_REACHABLE or time.monotonic() > deadline_s:
                raise
            time.sleep(_RETRY_PAUSE_S)


def transaction_coordinator(connection: Connection, transactional_id: str) -> Address:
    return _coordinator(connection, transactional_id, 1)


def group_coordinator(connection: Connection, group: str) -> Address:
    return _coordinator(connection, group, 0)


def _coordinator(connection: Connection, key: str, key_type: int) -> Address:
    values = {"key": key, "key_type": key_type}
    _, found = first_answer(
        brokers(connection), lambda asked: ask(asked, ApiKey.FIND_COORDINATOR, 2, values, connection.timeout_s)
    )
    if found.error_code:
        raise Failure(code_name(found.error_code), found.error_message or "the broker knows no coordinator")
    return connection.address(found.host, found.port)

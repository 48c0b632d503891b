"""Questions to single brokers that librdkafka does not ask, each over a connection of its own.

A broker that does not answer is a `Failure`, with what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cordwood.administration import CLIENT_ID
from cordwood.administration.addresses import security_of
from cordwood.client.connection import Connection
from cordwood.client.errors import BrokerUnreachable, LogInFailure, SecurityFailure
from cordwood.client.link import single_request
from cordwood.client.settings import Address, ClientSettings
from cordwood.model.errors import code_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.wire.apis import APIS, ApiKey

if TYPE_CHECKING:
    from cordwood.wire.api_types import KeyOf, Response
    from cordwood.wire.message_types.describe_cluster import DescribeCluster

_BROKER_ENDPOINTS = 1

T = TypeVar("T")


class NotLetIn(Failure):
    """A failure of TLS or of the log-in, which another attempt would not change."""

    def __init__(self, error: SecurityFailure) -> None:
        code = "SASL_AUTHENTICATION_FAILED" if isinstance(error, LogInFailure) else "TLS_FAILED"
        super().__init__(code, str(error), "", ExitCode.NOT_REACHABLE)


def ask(address: Address, key: KeyOf[Response], version: int, values: Mapping[str, Any], timeout_s: float) -> Response:
    """The response as an entity with Kafka's field names. Raises Failure if there is no response."""
    try:
        return single_request(address, key, version, values, timeout_s, CLIENT_ID, security_of(address))
    except SecurityFailure as error:
        raise NotLetIn(error) from error
    except BrokerUnreachable as error:
        host, port = address
        raise Failure(
            "BROKER_NOT_REACHABLE",
            f"{host}:{port} did not answer {APIS[key].name}: {error.__cause__ or error}",
            "does the broker run, and offer this API without authentication?",
            ExitCode.NOT_REACHABLE,
        ) from error


def prove(servers: Sequence[Address], timeout_s: float) -> None:
    """Goes through TLS and the log-in at the first server that takes a connection. librdkafka tries both again until
    its timeout, also with a wrong password. Raises Failure."""
    for address in servers:
        try:
            settings = ClientSettings(
                str(address),
                client_id=CLIENT_ID,
                connect_timeout_ms=round(timeout_s * 1000),
                request_timeout_ms=round(timeout_s * 1000),
                security=security_of(address),
            )
            Connection(address.host, address.port, settings).close()
        except SecurityFailure as error:
            raise NotLetIn(error) from error
        except BrokerUnreachable as error:
            unreachable = error
        else:
            return
    raise Failure("BROKER_NOT_REACHABLE", str(unreachable), "", ExitCode.NOT_REACHABLE) from unreachable


def first_answer(addresses: Sequence[Address], question: Callable[[Address], T]) -> tuple[Address, T]:
    """The first broker that answers, and its answer: a dead broker is listed until its registration ends.

    Raises Failure if no broker answers.
    """
    if not addresses:
        raise Failure(
            "BROKER_NOT_REACHABLE",
            "no broker is registered in the metadata store just now",
            "ask again in some seconds; if it stays so, look at the store",
            ExitCode.NOT_REACHABLE,
        )
    *others, last = addresses
    for address in others:
        try:
            return address, question(address)
        except Failure as failure:
            if failure.exit_code is not ExitCode.NOT_REACHABLE:
                raise
    return last, question(last)


def describe_cluster(address: Address, timeout_s: float) -> DescribeCluster.Response:
    """All brokers of the cluster, also those that are away. Raises Failure."""
    values = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": _BROKER_ENDPOINTS,
        "include_fenced_brokers": True,
    }
    told = ask(address, ApiKey.DESCRIBE_CLUSTER, 2, values, timeout_s)
    if told.error_code:
        raise Failure(code_name(told.error_code), told.error_message or "the broker does not describe the cluster")
    return told

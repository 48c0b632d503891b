"""Talks to a broker as an ordinary Kafka client (librdkafka), with failures that say what to do.

The first step is a plain TCP connection. librdkafka would retry a refused connection until its timeout; a person wants
to hear at once that nothing listens at the address.
"""

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from cordwood.administration import CLIENT_ID
from cordwood.administration.addresses import BrokerAddress
from cordwood.client.bootstrap import Bootstrap
from cordwood.client.settings import Address
from cordwood.model.errors import ErrorCode, code_name
from cordwood.model.failure import ExitCode, Failure, near_names
from cordwood.model.quantities import count_in_words
from cordwood.security.connection_settings import PLAIN_TEXT, TOKEN_AUTH, parse_security

K = TypeVar("K")
T = TypeVar("T")

_CONNECT_TIMEOUT_S = 3.0
_PROVEN_WITHIN_S = 10.0
"""A busy broker takes its time for the log-in."""
_RETRY_PAUSE_S = 0.05
_MAX_SOCKET_TIMEOUT_MS = 300_000
"""librdkafka refuses a longer timeout."""
_NOT_YET = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Errors of a broker that is still starting, still taking up a new topic, or still waiting for other replicas."""
_END_UNKNOWN = frozenset({ErrorCode.OFFSET_NOT_AVAILABLE})
_NO_LEADER = frozenset({ErrorCode.LEADER_NOT_AVAILABLE.name, "NOENT"})
"""Failures of a topic without leaders: of some partitions, and (librdkafka's `_NOENT`) of all."""

_silent = logging.getLogger("cordwood.administration.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class Connection:
    """Clients of one cluster. Each command makes one; the first client made opens a socket."""

    def __init__(
        self, bootstrap_servers: str, timeout_s: float = 10.0, client_settings: Mapping[str, str] | None = None
    ) -> None:
        """`client_settings` are librdkafka's, for brokers that ask for TLS or a log-in."""
        self.bootstrap_servers = bootstrap_servers
        self.timeout_s = timeout_s
        self._client_settings = dict(client_settings or {})
        try:
            self.security = parse_security(self._client_settings)
        except ValueError as reason:
            raise Failure(
                "INVALID_CONFIG", f"the client's settings are refused: {reason}", "", ExitCode.USAGE
            ) from None
        self._refusals: list[KafkaError] = []
        """Log-ins and handshakes that failed. librdkafka tells them apart from its requests, which it tries again."""
        self._family: str | None = None
        self._admin: AdminClient | None = None

    def address(self, host: str, port: int) -> Address:
        """The address of a broker of this cluster, for questions that librdkafka does not ask."""
        return BrokerAddress(host, port, self.security)

    def admin(self) -> AdminClient:
        if self._admin is None:
            configuration = self._configuration({"error_cb": partial(_note_refusal, self._refusals)})
            try:
                self._admin = AdminClient(configuration, logger=_silent)
            except KafkaException as error:
                raise Failure(
                    "INVALID_CONFIG", f"the client's settings are refused: {kafka_error(error).str()}"
                ) from error
        return self._admin

    def producer(self, configuration: Mapping[str, Any]) -> Producer:
        return Producer(self._configuration(configuration), logger=_silent)

    def consumer(self, configuration: Mapping[str, Any]) -> Consumer:
        """A consumer that refuses records with a wrong checksum: librdkafka does not compare them by default."""
        return Consumer(self._configuration({"check.crcs": True, **configuration}), logger=_silent)

    def ask(self, request: Callable[[AdminClient], Future[T]]) -> T:
        """Sends one admin request about one object, and returns the answer."""
        return self.ask_all(lambda admin: {"": request(admin)})[""]

    def ask_all(
        self, request: Callable[[AdminClient], Mapping[K, Future[T]]], *, left_out: Set[int] = frozenset()
    ) -> dict[K, T]:
        """Sends one admin request and returns all answers except those with an error in `left_out`; repeats the request
        while the broker is not ready yet."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return self._answers(request(self.admin()), left_out)
            except KafkaException as error:
                if kafka_error(error).code() not in _NOT_YET or time.monotonic() > deadline:
                    raise self.failure_of(error) from error
                time.sleep(_RETRY_PAUSE_S)
            except FutureTimeout as error:
                raise self.no_answer() from error

    def _answers(self, futures: Mapping[K, Future[T]], left_out: Set[int]) -> dict[K, T]:
        answers = {}
        for key, future in futures.items():
            try:
                self._wait_for(future)
                answers[key] = future.result(self.timeout_s)
            except KafkaException as error:
                if kafka_error(error).code() not in left_out:
                    raise
        return answers

    def call(self, function: Callable[[], T]) -> T:
        """Calls a function of librdkafka; a KafkaException becomes a Failure."""
        try:
            return function()
        except KafkaException as error:
            self.admin().poll(0)
            raise self.failure_of(self._refusals[0] if self._refusals else error) from error

    def failure_of(self, error: KafkaException | KafkaError) -> Failure:
        """An error of librdkafka as a Failure; a full disk, and TLS that is not spoken, are named as what they are."""
        carried = kafka_error(error) if isinstance(error, KafkaException) else error
        cause = _full_disk(self._servers) if carried.code() in _PERHAPS_FULL else None
        if cause is None and carried.code() in _PERHAPS_TLS:
            cause = self._wants_tls()
        return cause or _failure_of(carried, self.bootstrap_servers)

    def _wants_tls(self) -> Failure | None:
        """The failure for a client in plain text at a listener that speaks TLS; None: it speaks plain text, too."""
        if self.security != PLAIN_TEXT or not any(speaks_tls(each.host, each.port) for each in self._servers):
            return None
        return Failure(
            "TLS_FAILED",
            f"the broker at {self.bootstrap_servers} speaks TLS, and this command plain text",
            "--client-config, or CORDWOOD_CLIENT_CONFIG, names a file with security.protocol and ssl.ca.location: "
            "`cordwood serve --secure` writes one",
            ExitCode.NOT_REACHABLE,
        )

    @property
    def _servers(self) -> list[Address]:
        return addresses_of(Bootstrap(self.bootstrap_servers, self.security))

    def _wait_for(self, future: Future[T]) -> None:
        """Waits until the answer is there, the time is over, or a log-in or a handshake has failed."""
        if not self._client_settings:
            return
        deadline = time.monotonic() + self.timeout_s
        while not future.done() and time.monotonic() < deadline:
            self.admin().poll(_RETRY_PAUSE_S)
            if self._refusals:
                raise KafkaException(self._refusals[0])

    def offsets(self, topic: str, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        """The offset that `spec` means in each partition; -1: there is none. Raises Failure for a partition whose
        leader still does not know its end when the timeout has passed."""
        indexes = list(partitions)
        try:
            answers = self.ask_all(lambda admin: admin.list_offsets(_each(topic, indexes, spec)))
        except Failure as failure:
            if failure.code in _NO_LEADER:
                raise (self.without_leader(topic) or failure) from failure
            if failure.code != ErrorCode.OFFSET_NOT_AVAILABLE.name:
                raise
            known = self.known_offsets(topic, indexes, spec)
            raise _end_unknown(topic, [index for index in indexes if index not in known], failure) from failure
        return {partition.partition: answer.offset for partition, answer in answers.items()}

    def known_offsets(self, topic: str, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        """The known offsets: does not wait, and leaves out partitions whose leader does not know its end."""
        asked = _each(topic, partitions, spec)
        if not asked:
            return {}  # librdkafka refuses a question about nothing
        answers = self.ask_all(lambda admin: admin.list_offsets(asked), left_out=_END_UNKNOWN)
        return {partition.partition: answer.offset for partition, answer in answers.items()}

    def topic_names(self) -> list[str]:
        metadata = self.call(lambda: self.admin().list_topics(timeout=self.timeout_s))
        return sorted(metadata.topics)

    def unknown_topic(self, name: str) -> Failure:
        """The failure for a topic that does not exist; the hint has similar names."""
        shown = f"`cordwood topic list` lists the topics; `cordwood topic create {name}` creates this one"
        return Failure(
            "UNKNOWN_TOPIC_OR_PARTITION",
            f"there is no topic {name!r} at {self.bootstrap_servers}",
            near_names(name, self.topic_names()) or shown,
            ExitCode.NOT_FOUND,
        )

    def without_leader(self, topic: str) -> Failure | None:
        """The failure for a topic with partitions without a leader; None if each has one, or no broker says."""
        try:
            partitions = self.admin().list_topics(topic, timeout=self.timeout_s).topics[topic].partitions
        except (KafkaException, KeyError):
            return None
        waiting = sorted(index for index, each in partitions.items() if each.leader < 0)
        if not waiting:
            return None
        return Failure(
            "LEADER_NOT_AVAILABLE",
            f"{topic} has no leader for partition {_named(waiting)}",
            "`cordwood cluster status` says what the partition waits for",
        )

    def no_answer(self) -> Failure:
        return Failure(
            "REQUEST_TIMED_OUT",
            f"the broker at {self.bootstrap_servers} did not answer within {self.timeout_s:g} s",
            "is it a Kafka-compatible broker, or a busy one? --timeout waits longer",
            ExitCode.NOT_REACHABLE,
        )

    def _configuration(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        if TOKEN_AUTH in self._client_settings:
            raise Failure(
                "INVALID_CONFIG",
                f"the client's settings have {TOKEN_AUTH}, and this command goes through librdkafka, which cannot log "
                "in by a delegation token",
                "log in by a password or a certificate; docs/security/delegation-tokens.md says who takes them",
                ExitCode.USAGE,
            )
        if self._family is None:
            family = reachable_family(self.bootstrap_servers)
            if self.security != PLAIN_TEXT:
                # librdkafka would try a wrong password, or an unknown authority, again until its timeout.
                from cordwood.administration.asking import prove

                prove(self._servers, min(self.timeout_s, _PROVEN_WITHIN_S))
            self._family = family
        return {
            "client.id": CLIENT_ID,
            **self._client_settings,
            "bootstrap.servers": self.bootstrap_servers,
            "broker.address.family": self._family,
            "socket.timeout.ms": min(max(10, int(self.timeout_s * 1000)), _MAX_SOCKET_TIMEOUT_MS),
            **extra,
        }


def _note_refusal(refusals: list[KafkaError], error: KafkaError) -> None:
    # A callback that held the connection would make a circle with the client, whose end librdkafka does not survive.
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
        refusals.append(error)


def no_such_partition(topic: str, partition: int, indexes: list[int]) -> Failure:
    """The failure for a partition that a topic does not have."""
    return Failure(
        "UNKNOWN_TOPIC_OR_PARTITION",
        f"{topic} has no partition {partition}",
        f"the topic has {count_in_words(len(indexes), 'partition')}: 0 to {indexes[-1]}"
        if len(indexes) > 1
        else "the topic has one partition: 0",
        ExitCode.NOT_FOUND,
    )


def _each(topic: str, partitions: Iterable[int], spec: OffsetSpec) -> dict[TopicPartition, OffsetSpec]:
    return {TopicPartition(topic, index): spec for index in partitions}


def _named(partitions: list[int]) -> str:
    return ", ".join(map(str, partitions[:10])) + (", ..." if len(partitions) > 10 else "")


def _end_unknown(topic: str, partitions: list[int], failure: Failure) -> Failure:
    """The failure for ends that are not known. `partitions` is empty if their leaders have learned the ends since."""
    which = f"partition {_named(partitions)} of {topic}" if partitions else f"a partition of {topic}"
    return Failure(failure.code, f"the end of {which} is not known: {WHY_END_UNKNOWN}", failure.hint)


WHY_END_UNKNOWN = (
    "a leader cannot tell which records are committed before as many replicas as min.insync.replicas are in sync"
)


def reachable_family(bootstrap_servers: str) -> str:
    """The address family, for librdkafka, of the first server that takes a TCP connection. Raises Failure if none does.

    `localhost` is two addresses, a broker may listen on one of them, and librdkafka pauses after a refusal.
    """
    refusals = []
    for server in bootstrap_servers.split(","):
        host, port = parse_server(server)
        try:
            with socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S) as connected:
                return "v4" if host == "localhost" and connected.family == socket.AF_INET else "any"
        except OSError as error:
            refusals.append(f"{host}:{port}: {_reason(error)}")
    raise Failure(
        "BROKER_NOT_REACHABLE",
        f"no broker answers at {bootstrap_servers} ({'; '.join(refusals)})",
        "start a broker with `cordwood serve`, or name another with --bootstrap-server or CORDWOOD_BOOTSTRAP",
        ExitCode.NOT_REACHABLE,
    )


def speaks_tls(host: str, port: int) -> bool:
    """Whether a TLS handshake begins at the address. Nothing is sent over it, so that no certificate has to be good."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S) as plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False


def reach(bootstrap: Bootstrap) -> None:
    """Raises Failure at once if no broker takes a connection, or if brokers and client do not trust each other."""
    reachable_family(bootstrap.servers)
    if bootstrap.security != PLAIN_TEXT:
        from cordwood.administration.asking import prove

        prove(addresses_of(bootstrap), _PROVEN_WITHIN_S)


def addresses_of(bootstrap: Bootstrap) -> list[Address]:
    """The addresses that are named, for questions that librdkafka does not ask."""
    return [
        BrokerAddress(*parse_server(server), security=bootstrap.security) for server in bootstrap.servers.split(",")
    ]


def parse_server(text: str) -> Address:
    """Host and port of `HOST:PORT`, `HOST` or `[IPV6]:PORT`. Any other text is a usage error."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or "]" in port:
        host, port = text.strip(), "9092"
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Failure("USAGE", f"{text!r} is not HOST:PORT", "an example: localhost:9092", ExitCode.USAGE)
    try:
        host.encode("idna")
    except UnicodeError:
        raise Failure("USAGE", f"{host!r} cannot be a host name", exit_code=ExitCode.USAGE) from None
    return Address(host, int(port))


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {_CONNECT_TIMEOUT_S:g} s"
    return (error.strerror or str(error)).lower()


def kafka_error(error: KafkaException) -> KafkaError:
    """The error inside an exception of librdkafka."""
    carried: KafkaError = error.args[0]
    return carried


def _failure_of(carried: KafkaError, bootstrap_servers: str) -> Failure:
    """An error of librdkafka as a Failure: with the protocol's name for a broker's error, our own for a client's."""
    code = carried.code()
    if code > 0:
        return Failure(code_name(code), carried.str() or code_name(code), _HINTS.get(code, ""), _exit_code(code))
    if code == KafkaError._MSG_TIMED_OUT:
        return Failure(
            "REQUEST_TIMED_OUT",
            f"no acknowledgement came in time from {bootstrap_servers}",
            "too few replicas in sync, no leader, or a busy broker: see `cordwood cluster status`, or raise --timeout",
            ExitCode.NOT_REACHABLE,
        )
    if code == KafkaError._TIMED_OUT:
        return Failure(
            "REQUEST_TIMED_OUT",
            f"the broker at {bootstrap_servers} did not answer in time",
            "is it a Kafka-compatible broker, or a busy one? --timeout waits longer",
            ExitCode.NOT_REACHABLE,
        )
    if code in (KafkaError._AUTHENTICATION, KafkaError._SSL):
        log_in = code == KafkaError._AUTHENTICATION
        return Failure(
            "SASL_AUTHENTICATION_FAILED" if log_in else "TLS_FAILED",
            f"{bootstrap_servers} refuses the {'log-in' if log_in else 'connection over TLS'}: {carried.str()}",
            "sasl.username and sasl.password of --client-config have to be those of a user of the cluster"
            if log_in
            else "ssl.ca.location of --client-config has to name the authority of the broker's certificate",
            ExitCode.NOT_REACHABLE,
        )
    if code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
        return Failure(
            "BROKER_NOT_REACHABLE",
            f"the connection to {bootstrap_servers} failed: {carried.str()}",
            "is the broker running, and can the address that it advertises be reached from here?",
            ExitCode.NOT_REACHABLE,
        )
    return Failure(carried.name().removeprefix("_"), carried.str())


def _full_disk(servers: Sequence[Address]) -> Failure | None:
    """The failure that replaces one caused by a full disk; None: no broker reports a full disk."""
    # Few failures need these imports, and every command needs this module.
    from cordwood.administration.asking import describe_cluster, first_answer

    try:
        _, told = first_answer(servers, lambda asked: describe_cluster(asked, _CONNECT_TIMEOUT_S))
    except Failure:
        return None
    full = [each for each in told.brokers if each.is_disk_full and not each.is_away]
    full.sort(key=lambda each: each.broker_id)
    if not full:
        return None
    names = ", ".join(
        f"broker {each.broker_id} ({each.host}:{each.port})" for each in sorted(full, key=lambda each: each.broker_id)
    )
    return Failure("DISK_FULL", f"the disk of {names} is full: it takes no records", MAKE_ROOM)


def _exit_code(code: int) -> ExitCode:
    return ExitCode.NOT_FOUND if code in _NOT_FOUND else ExitCode.FAILED


_NOT_FOUND = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.RESOURCE_NOT_FOUND})

MAKE_ROOM = (
    "make room: a lower retention.ms (it frees room within minutes; retention.bytes spares the newest segment of each "
    "partition), a topic that can go, a larger disk"
)

_PERHAPS_FULL = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors that clients get from a broker without space for records."""

_ASK_RULES = "an administrator gives rights by `cordwood acl add`; `cordwood acl explain USER OPERATION"

_PERHAPS_TLS = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})
"""Errors of a client whose connections the broker closes at once."""

_HINTS: Mapping[int, str] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "`cordwood topic describe` shows the topic; --if-not-exists accepts it as it is",
    ErrorCode.INVALID_CONFIG: "`cordwood config list` shows every setting, its values and its meaning",
    ErrorCode.MESSAGE_TOO_LARGE: "the topic's max.message.bytes is the limit for one batch",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than the topic's min.insync.replicas",
    ErrorCode.OFFSET_NOT_AVAILABLE: "start the other replicas' brokers: `cordwood cluster status` names them. "
    "--timeout waits longer",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"{_ASK_RULES} --topic NAME` says why",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: f"{_ASK_RULES} --group NAME` says why",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"{_ASK_RULES} --transactional-id NAME` says why",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: f"{_ASK_RULES} --cluster` says why",
    ErrorCode.NON_EMPTY_GROUP: "stop the group's consumers first; `cordwood group describe` names them",
    ErrorCode.UNKNOWN_MEMBER_ID: "stop the group's consumers first",
    ErrorCode.INVALID_REPLICATION_FACTOR: "a partition has at most one replica on each node, and one in all with "
    "`serve --workers`: ask for fewer replicas, or add nodes",
}

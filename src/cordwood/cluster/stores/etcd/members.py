"""The member of etcd that the store talks to, and the change to another when it fails.

A member is used only after it has given its version, its cluster and its raft term. The highest term that a member
served in is kept: a member in an earlier term is cut off from the others, or etcd was restored from an older copy.
"""

import asyncio
import json
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from cordwood.cluster.stores.etcd.messages import MESSAGES
from cordwood.cluster.stores.etcd.options import EtcdOptions
from cordwood.cluster.stores.etcd.versions import refusal
from cordwood.cluster.stores.interface import StoreFailure, StoreUnavailable, StoreWentBack
from cordwood.model.back_off import BackOff

logger = logging.getLogger("cordwood.cluster.etcd")

PING_EVERY_MS = 10_000
"""etcd ends connections that ping more often than every 5 s."""
_PING_TIMEOUT_MS = 4_000
_BACK_OFF = BackOff(50, 1_000)
_NO_LEADER = "etcdserver: no leader"
_CHANNEL_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    # Each channel has its own connection: the pauses of an earlier connection to the same member do not count.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)


class Method(NamedTuple):
    path: str
    request: Any
    response: Any


def _method(service: str, name: str, request: str, response: str) -> Method:
    return Method(f"/etcdserverpb.{service}/{name}", MESSAGES[request], MESSAGES[response])


RANGE = _method("KV", "Range", "RangeRequest", "RangeResponse")
TXN = _method("KV", "Txn", "TxnRequest", "TxnResponse")
COMPACT = _method("KV", "Compact", "CompactionRequest", "CompactionResponse")
WATCH = _method("Watch", "Watch", "WatchRequest", "WatchResponse")
GRANT = _method("Lease", "LeaseGrant", "LeaseGrantRequest", "LeaseGrantResponse")
REVOKE = _method("Lease", "LeaseRevoke", "LeaseRevokeRequest", "LeaseRevokeResponse")
KEEP_ALIVE = _method("Lease", "LeaseKeepAlive", "LeaseKeepAliveRequest", "LeaseKeepAliveResponse")
STATUS = _method("Maintenance", "Status", "StatusRequest", "StatusResponse")
AUTHENTICATE = _method("Auth", "Authenticate", "AuthenticateRequest", "AuthenticateResponse")


class CallFailed(Exception):
    """A call to a member failed, or its answer is not to be believed."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{details} ({code.name})")
        self.code = code
        self.details = details

    @property
    def member_is_to_blame(self) -> bool:
        """True if another member may do better."""
        return self.code in _MEMBER_FAULTS

    @property
    def was_not_done(self) -> bool:
        """True if the member refused the call before it did anything."""
        return self.code in _REFUSALS or (self.code is grpc.StatusCode.UNAVAILABLE and self.details == _NO_LEADER)


_MEMBER_FAULTS = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNKNOWN,  # a leader lost during a renewal
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.CANCELLED,
}
_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
}


class Member:
    """A connection to one member."""

    def __init__(self, endpoint: str, channel: grpc.aio.Channel) -> None:
        self.endpoint = endpoint
        self.token = ""
        self.channel = channel
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when another member is used instead."""

    @property
    def is_connected(self) -> bool:
        return bool(self.channel.get_state() is grpc.ChannelConnectivity.READY)

    async def call(self, method: Method, request: Any, within_s: float) -> Any:
        """One request, one response. Raises CallFailed."""
        ask = self.channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        with call_failures():
            return await ask(request, timeout=within_s, metadata=self._metadata())

    def stream(self, method: Method, within_s: float | None = None) -> Any:
        """A call with a stream of requests and one of responses. The caller cancels it."""
        open_stream = self.channel.stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return open_stream(timeout=within_s, metadata=self._metadata())

    async def unless_left(self, step: Awaitable[Any]) -> Any:
        """The outcome of a step of a stream. Raises CallFailed, also when the member is left meanwhile."""
        waiting = asyncio.ensure_future(step)
        try:
            await asyncio.wait((waiting, self.left), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done() and not waiting.cancelled():
                with call_failures():
                    return waiting.result()
        finally:
            waiting.cancel()
        raise CallFailed(grpc.StatusCode.UNAVAILABLE, "the member was left")

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        # Without `hasleader` a member that lost the others takes calls, and lets watches wait in silence.
        required = (("hasleader", "true"),)
        return (*required, ("token", self.token)) if self.token else required


@contextmanager
def call_failures() -> Iterator[None]:
    """Raises CallFailed for errors of gRPC."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise CallFailed(error.code(), error.details() or "") from error
    except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:  # the channel or the call was closed
        raise CallFailed(grpc.StatusCode.UNAVAILABLE, str(error)) from error


class Members:
    """Chooses the member for every call, and keeps to it until it fails."""

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._attempt_s = options.attempt_ms / 1000
        self._endpoints = random.sample(options.endpoints, len(options.endpoints))
        self._current: Member | None = None
        self._choosing = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False
        self._cluster_id = 0
        self._term = 0
        self._revision = 0
        self._failures: dict[str, str] = {}
        """The reason why each member was not used, in the last search."""

    @property
    def endpoint(self) -> str | None:
        """The member in use."""
        return None if self._current is None else self._current.endpoint

    async def connected(self, deadline_s: float) -> Member:
        """A member with an open connection. Raises StoreUnavailable if there is none at `deadline_s` of the loop's
        clock, StoreFailure if no member can ever be used."""
        member = self._current
        if member is not None and not member.is_connected:
            self.leave(member, "its connection broke")
        elif member is not None:
            return member
        try:
            async with asyncio.timeout_at(deadline_s), self._choosing:
                return self._current or await self._choose()
        except TimeoutError:
            raise StoreUnavailable(f"no member of etcd serves: {self._reasons()}") from None

    async def repeat(
        self, ask: Callable[[Member, float], Awaitable[Any]], deadline_s: float, attempt_s: float | None = None
    ) -> Any:
        """The answer of the first member that has one: for calls that may be done twice. Raises StoreUnavailable, and
        CallFailed if etcd itself refuses the call."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            member = await self.connected(deadline_s)
            try:
                return await self.attempt(member, ask, min(attempt_s or self._attempt_s, deadline_s - loop.time()))
            except CallFailed as failure:
                if not failure.member_is_to_blame:
                    raise
                self.leave(member, str(failure))
                # The first change of the member is immediate.
                pause_s = _BACK_OFF.pause_ms(failures) / 1000
                if loop.time() + pause_s >= deadline_s:
                    raise StoreUnavailable(f"etcd's member {member.endpoint} failed: {failure}") from failure
                await asyncio.sleep(pause_s)
                failures += 1

    async def attempt(
        self, member: Member, ask: Callable[[Member, float], Awaitable[Any]], within_s: float | None = None
    ) -> Any:
        """The answer of one member. Raises CallFailed, also for an answer of an earlier raft term."""
        within_s = self._attempt_s if within_s is None else max(within_s, 0.001)
        sent_in_term = self._term
        try:
            answer = await ask(member, within_s)
        except CallFailed as failure:
            if failure.code is not grpc.StatusCode.UNAUTHENTICATED or not self._options.user:
                raise
            await self._authenticate(member)
            answer = await ask(member, within_s)
        header = answer.header
        if header.raft_term < sent_in_term:
            raise CallFailed(grpc.StatusCode.UNAVAILABLE, _earlier_term(header.raft_term, sent_in_term))
        return answer

    def saw(self, header: Any) -> None:
        """Notes the term and the revision of an answer that a majority of the members confirms."""
        self._term = max(self._term, header.raft_term)
        self._revision = max(self._revision, header.revision)

    def leave(self, member: Member, reason: str) -> None:
        """Makes later calls use another member. Calls under way at this one may finish; its watches end."""
        if self._current is not member:
            return
        self._current = None
        logger.warning("etcd's member %s is left: %s", member.endpoint, reason)
        member.left.set_result(None)
        task = asyncio.create_task(member.channel.close(self._options.deadline_ms / 1000))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        self._closed = True
        member, self._current = self._current, None
        for task in tuple(self._leaving):
            task.cancel()
        if member is not None:
            member.left.set_result(None)
            await member.channel.close()

    async def _choose(self) -> Member:
        self._failures.clear()
        failures = 0
        while True:
            hopeless = True
            for endpoint in tuple(self._endpoints):
                if self._closed:
                    raise StoreUnavailable("the connection to etcd is closed")
                # The next search begins with the other members.
                self._endpoints.remove(endpoint)
                self._endpoints.append(endpoint)
                member = Member(endpoint, self._channel(endpoint))
                try:
                    await self._check(member)
                    if self._closed:
                        raise CallFailed(grpc.StatusCode.UNAVAILABLE, "the connection to etcd is closed")
                except CallFailed as failure:
                    self._failures[endpoint] = str(failure)
                    hopeless &= not failure.member_is_to_blame
                    await member.channel.close()
                except BaseException:
                    await member.channel.close()
                    raise
                else:
                    logger.debug("etcd's member %s is used", endpoint)
                    self._current = member
                    return member
            if hopeless:
                raise StoreFailure(f"etcd cannot be used: {self._reasons()}")
            failures += 1
            await asyncio.sleep(_BACK_OFF.pause_ms(failures) / 1000)

    def _reasons(self) -> str:
        return "; ".join(f"{endpoint}: {reason}" for endpoint, reason in sorted(self._failures.items())) or "no answer"

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        options = self._options
        if not options.tls:
            return grpc.aio.insecure_channel(endpoint, options=_CHANNEL_OPTIONS)
        try:
            files = [Path(name).read_bytes() if name else None for name in (options.ca_file, options.key_file)]
            certificate = Path(options.certificate_file).read_bytes() if options.certificate_file else None
        except OSError as error:
            raise StoreFailure(f"a file of the connection to etcd cannot be read: {error}") from error
        credentials = grpc.ssl_channel_credentials(files[0], files[1], certificate)
        return grpc.aio.secure_channel(endpoint, credentials, options=_CHANNEL_OPTIONS)

    async def _check(self, member: Member) -> None:
        """Raises CallFailed if the member must not be used, StoreWentBack if etcd went back."""
        if self._options.user:
            await self._authenticate(member)
        version, header = await self._introduction(member)
        why = refusal(version, with_auth=bool(self._options.user))
        if why is not None and not self._options.allow_old:
            raise CallFailed(grpc.StatusCode.FAILED_PRECONDITION, why)
        if self._cluster_id not in (0, header.cluster_id):
            raise CallFailed(
                grpc.StatusCode.FAILED_PRECONDITION, "it belongs to another etcd than the members before it"
            )
        if header.raft_term < self._term:
            await self._check_went_back(member)
        self._cluster_id = header.cluster_id

    async def _introduction(self, member: Member) -> tuple[str, Any]:
        """The version of a member, and the header of an answer. Raises CallFailed."""
        try:
            status = await member.call(STATUS, STATUS.request(), self._attempt_s)
        except CallFailed as failure:
            if failure.code is not grpc.StatusCode.PERMISSION_DENIED:
                raise
            # Only etcd's root user may read the status. A learner refuses the read.
            header = (await member.call(RANGE, self._any_key(), self._attempt_s)).header
            return await version_over_http(member.endpoint, self._options, self._attempt_s), header
        if status.is_learner:
            raise CallFailed(grpc.StatusCode.UNAVAILABLE, "it is a learner, which does not vote")
        return status.version, status.header

    def _any_key(self) -> Any:
        return RANGE.request(key=self._options.prefix.encode(), limit=1, keys_only=True)

    async def _check_went_back(self, member: Member) -> None:
        """Tells a member that is cut off, and cannot answer a read that asks the others, from an etcd that was
        restored: its terms begin anew. A follower of the store compares a restored etcd with a later revision."""
        header = (await member.call(RANGE, self._any_key(), self._attempt_s)).header
        if header.raft_term >= self._term:
            return
        if header.revision < self._revision:
            raise StoreWentBack(self._revision, header.revision)
        self._term = header.raft_term

    async def log_in_again(self, member: Member) -> None:
        """Renews the token of a member, which may have expired. Raises CallFailed, StoreFailure."""
        if self._options.user:
            await self._authenticate(member)

    async def _authenticate(self, member: Member) -> None:
        member.token = ""
        request = AUTHENTICATE.request(name=self._options.user, password=self._options.read_password())
        member.token = (await member.call(AUTHENTICATE, request, self._attempt_s)).token


async def version_over_http(endpoint: str, options: EtcdOptions, within_s: float) -> str:
    """The version that a member gives to any client, at the address of its gRPC. Raises CallFailed."""
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    request = f"GET /version HTTP/1.0\r\nHost: {host}\r\n\r\n"
    try:
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=_tls_context(options))
            try:
                writer.write(request.encode())
                _, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
        return str(json.loads(body)["etcdserver"])
    except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
        raise CallFailed(grpc.StatusCode.UNAVAILABLE, f"it does not tell its version: {error!r}") from error


def _tls_context(options: EtcdOptions) -> ssl.SSLContext | None:
    if not options.tls:
        return None
    context = ssl.create_default_context(cafile=options.ca_file or None)
    if options.certificate_file:
        context.load_cert_chain(options.certificate_file, options.key_file)
    return context


def _earlier_term(term: int, seen: int) -> str:
    return f"it answers in raft term {term} after term {seen} was seen: it is cut off, or an older copy"

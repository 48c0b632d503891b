"""A member that says what a test wants: versions and raft terms that no etcd at hand has."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from cordwood.cluster.stores.etcd.members import RANGE, STATUS, Method
from cordwood.cluster.stores.etcd.messages import MESSAGES


@dataclass
class ScriptedMember:
    """Answers Status and reads. A member that is `cut_off` does not answer reads, one that is `gone` nothing."""

    endpoint: str = ""
    version: str = "3.5.30"
    cluster_id: int = 7
    raft_term: int = 5
    revision: int = 10
    cut_off: bool = False
    gone: bool = False

    def _header(self) -> Any:
        return MESSAGES["ResponseHeader"](cluster_id=self.cluster_id, raft_term=self.raft_term, revision=self.revision)

    async def status(self, request: Any, context: Any) -> Any:
        if self.gone:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        return STATUS.response(header=self._header(), version=self.version)

    async def range(self, request: Any, context: Any) -> Any:
        if self.cut_off or self.gone:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "etcdserver: request timed out")
        return RANGE.response(header=self._header())


@asynccontextmanager
async def scripted_member(**script: Any) -> AsyncIterator[ScriptedMember]:
    member = ScriptedMember(**script)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handler(STATUS, member.status), _handler(RANGE, member.range)))
    member.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield member
    finally:
        await server.stop(None)


def _handler(method: Method, answer: Any) -> Any:
    _, service, name = method.path.split("/")
    handler = grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=method.request.FromString,
        response_serializer=method.response.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(service, {name: handler})

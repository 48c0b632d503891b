"""One watch: a stream of etcd's, turned into events of whole revisions."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio

from cordwood.cluster.stores.etcd.keys import KeyRange
from cordwood.cluster.stores.etcd.members import WATCH, CallFailed, Member, Members
from cordwood.cluster.stores.etcd.messages import DELETED, MESSAGES
from cordwood.cluster.stores.interface import Compacted, Event, StoreFailure, StoreUnavailable

_EXPIRED_TOKEN = "invalid auth token"


class WatchStream:
    """A watch at one member. Ends with the connection: the reader begins anew after the last event that it took."""

    def __init__(self, members: Members, cluster_prefix: str, prefix: str, from_revision: int) -> None:
        self._members = members
        self._cut = len(cluster_prefix.encode())
        keys = KeyRange(cluster_prefix, prefix)
        creation = MESSAGES["WatchCreateRequest"](key=keys.key, range_end=keys.end, start_revision=from_revision)
        self._request = WATCH.request(create_request=creation)

    async def events(self, deadline_s: float) -> AsyncIterator[Sequence[Event]]:
        """Raises Compacted, StoreUnavailable. The watch has to begin before `deadline_s` of the loop's clock."""
        member = await self._members.connected(deadline_s)
        stream = member.stream(WATCH)
        try:
            async with asyncio.timeout_at(deadline_s):
                response = await self._begin(member, stream)
                if response.canceled and _EXPIRED_TOKEN in response.cancel_reason:
                    stream.cancel()
                    await self._members.log_in_again(member)
                    stream = member.stream(WATCH)
                    response = await self._begin(member, stream)
            while True:
                if response.canceled:
                    # The stream itself stays open: nothing would ever come.
                    raise _cancelled(response)
                if response.events:
                    yield self._decoded(response.events)
                response = await _read(member, stream)
        except TimeoutError:
            raise self._broken(member, "a watch did not begin in time") from None
        except CallFailed as failure:
            raise self._broken(member, str(failure)) from failure
        finally:
            stream.cancel()

    async def _begin(self, member: Member, stream: Any) -> Any:
        await member.unless_left(stream.write(self._request))
        return await _read(member, stream)

    def _broken(self, member: Member, reason: str) -> StoreUnavailable:
        self._members.leave(member, reason)
        return StoreUnavailable(f"the watch at etcd's member {member.endpoint} broke: {reason}")

    def _decoded(self, events: Sequence[Any]) -> list[Event]:
        """The events, sorted by key within a revision. etcd sends all events of a revision in one response, unless it
        is asked for fragments."""
        decoded = [self._event(event) for event in events]
        decoded.sort(key=lambda event: (event.mod_revision, event.key))
        return decoded

    def _event(self, event: Any) -> Event:
        item = event.kv
        key = item.key[self._cut :].decode()
        if event.type == DELETED:
            return Event(key, None, 0, item.mod_revision)
        return Event(key, item.value, item.create_revision, item.mod_revision)


async def _read(member: Member, stream: Any) -> Any:
    response = await member.unless_left(stream.read())
    if response is grpc.aio.EOF:
        raise CallFailed(grpc.StatusCode.UNAVAILABLE, "the member ended the stream")
    return response


def _cancelled(response: Any) -> Compacted | StoreFailure:
    if response.compact_revision:
        return Compacted(response.compact_revision)
    return StoreUnavailable(f"etcd ended a watch: {response.cancel_reason}")

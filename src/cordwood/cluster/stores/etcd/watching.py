"""One watch: a stream of etcd's, turned into events of whole revisions.

etcd's revision moves with every change of any of its users, and a transaction whose comparisons fail returns it. A
watch gets events of its own keys alone. So a watch that is behind a revision that callers know asks etcd for its
progress: the answer names the revision up to which all events were sent.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio

from cordwood.cluster.stores.etcd.keys import KeyRange
from cordwood.cluster.stores.etcd.members import WATCH, CallFailed, Member, Members
from cordwood.cluster.stores.etcd.messages import DELETED, MESSAGES
from cordwood.cluster.stores.interface import Compacted, Event, StoreFailure, StoreUnavailable, WatchStep
from cordwood.model.back_off import BackOff

_EXPIRED_TOKEN = "invalid auth token"
_PROGRESS = WATCH.request(progress_request=MESSAGES["WatchProgressRequest"]())
_BACK_OFF = BackOff(20, 500)
"""The waits of a watch that is behind before it asks for progress. The first one gives events time: an event mostly
follows the answer to its transaction within a few milliseconds. etcd does not answer while it still has events to send.
"""


class ToldRevision:
    """The highest revision that a store has told its callers, who may wait for it."""

    def __init__(self) -> None:
        self.revision = 0
        self.behind: set[asyncio.Event] = set()
        """An event of each watch: the watch may be behind. Set when the revision rises."""

    def rises_to(self, revision: int) -> None:
        if revision > self.revision:
            self.revision = revision
            for each in self.behind:
                each.set()


class WatchStream:
    """A watch at one member. Ends with the connection: the reader begins anew after the last event that it took."""

    def __init__(
        self, members: Members, told: ToldRevision, cluster_prefix: str, prefix: str, from_revision: int
    ) -> None:
        self._members = members
        self._told = told
        self._revision = from_revision - 1
        """The revision up to which the watch has told everything."""
        self._cut = len(cluster_prefix.encode())
        keys = KeyRange(cluster_prefix, prefix)
        creation = MESSAGES["WatchCreateRequest"](key=keys.key, range_end=keys.end, start_revision=from_revision)
        self._request = WATCH.request(create_request=creation)

    async def steps(self, deadline_s: float) -> AsyncIterator[WatchStep]:
        """The steps of the watch. Raises Compacted, StoreUnavailable. The watch has to begin before `deadline_s` of the
        loop's clock."""
        member = await self._members.connected(deadline_s)
        stream = member.stream(WATCH)
        asking: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout_at(deadline_s):
                response = await self._begin(member, stream)
                if response.canceled and _EXPIRED_TOKEN in response.cancel_reason:
                    stream.cancel()
                    await self._members.log_in_again(member)
                    stream = member.stream(WATCH)
                    response = await self._begin(member, stream)
            asking = asyncio.create_task(self._ask_for_progress(member, stream))
            while True:
                if response.canceled:
                    # The stream itself stays open: nothing would ever come.
                    raise _cancelled(response)
                events = self._decoded(response.events)
                # The header of a response with events may be of a later revision, whose events are not sent yet.
                revision = events[-1].mod_revision if events else response.header.revision
                if events or (_is_progress(response) and revision > self._revision):
                    self._revision = revision
                    yield WatchStep(revision, events)
                response = await _read(member, stream)
        except TimeoutError:
            raise self._broken(member, "a watch did not begin in time") from None
        except CallFailed as failure:
            raise self._broken(member, str(failure)) from failure
        finally:
            if asking is not None:
                asking.cancel()
            stream.cancel()

    async def _ask_for_progress(self, member: Member, stream: Any) -> None:
        """Asks for progress while the watch is behind a revision that callers know."""
        behind = asyncio.Event()
        behind.set()
        self._told.behind.add(behind)
        tries = 1
        try:
            while True:
                await behind.wait()
                await asyncio.sleep(_BACK_OFF.pause_ms(tries) / 1000)
                if self._revision >= self._told.revision:
                    behind.clear()
                    tries = 1
                else:
                    await member.unless_left(stream.write(_PROGRESS))
                    tries += 1
        except CallFailed:
            pass  # The reader of the stream meets the same failure.
        finally:
            self._told.behind.discard(behind)

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


def _is_progress(response: Any) -> bool:
    """True if a response says that everything up to the revision of its header was sent."""
    return not response.created and not response.canceled and not response.events


def _cancelled(response: Any) -> Compacted | StoreFailure:
    if response.compact_revision:
        return Compacted(response.compact_revision)
    return StoreUnavailable(f"etcd ended a watch: {response.cancel_reason}")

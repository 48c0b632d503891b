"""A roll call: whoever writes the store learns which brokers have seen all that was written before.

A question is a key under the lease of its writer. Each broker whose image shows it writes an answer beside it, under
its own lease, and does so no more once the question is gone. Needs no connection to a broker, so neither TLS nor a
log-in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import uuid4

from cordwood.cluster.authority import Authority
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ImageDelta
from cordwood.cluster.metadata.rows import roll_call_answer_key, roll_call_key
from cordwood.cluster.planner.store_transactions import StoreTxn
from cordwood.cluster.stores.interface import Delete, DeletePrefix, MetadataStore, Put, StoreFailure, present

logger = logging.getLogger("cordwood.cluster")

AGAIN_S = 0.5
"""The pause of a broker whose answer the store did not take."""
LASTS_MS = 60_000
"""The lease of a question: one whose writer is gone is answered by nobody for long."""


class RollCall:
    """A question, and the brokers that have answered it. Made by `begin`."""

    def __init__(self, store: MetadataStore, name: str, lease: int) -> None:
        self._store = store
        self._name = name
        self._lease = lease

    @classmethod
    async def begin(cls, store: MetadataStore) -> RollCall:
        """Raises StoreFailure."""
        name, lease = uuid4().hex, await store.grant(LASTS_MS)
        await store.txn((), (Put(roll_call_key(name), b"", lease),))
        return cls(store, name, lease)

    async def answered(self) -> set[int]:
        """The brokers that have seen everything that was written before `begin`. Raises StoreFailure, LeaseEnded."""
        await self._store.renew(self._lease)
        prefix = roll_call_answer_key(self._name)
        return {int(item.key.removeprefix(prefix)) for item in (await self._store.list(prefix)).items}

    async def end(self) -> None:
        """Raises StoreFailure."""
        await self._store.txn((), (Delete(roll_call_key(self._name)), DeletePrefix(roll_call_answer_key(self._name))))
        await self._store.revoke(self._lease)


class Answering:
    """Answers questions for this broker. Belongs to one event loop."""

    def __init__(self, follower: ImageFollower, authority: Authority, lease_of: Callable[[], int]) -> None:
        """`lease_of` returns the lease of the broker's present registration."""
        self._follower = follower
        self._image = follower.image
        self._authority = authority
        self._lease_of = lease_of
        self._answers: dict[str, asyncio.Task[None]] = {}
        """Answers on their way into the image."""

    def start(self) -> None:
        self._follower.watchers.append(self._image_changed)

    async def stop(self) -> None:
        for task in self._answers.values():
            task.cancel()
        if self._answers:
            await asyncio.wait(self._answers.values())

    def _image_changed(self, delta: ImageDelta) -> None:
        for name, answered in self._image.roll_calls.answered.items():
            if self._image.node_id not in answered and name not in self._answers:
                self._answers[name] = asyncio.get_running_loop().create_task(self._answer(name))

    async def _answer(self, name: str) -> None:
        open_calls, node_id = self._image.roll_calls.answered, self._image.node_id
        while name in open_calls and node_id not in open_calls[name]:
            put = Put(roll_call_answer_key(name, node_id), b"", self._lease_of())
            try:
                result = await self._authority.transact(StoreTxn((present(roll_call_key(name)),), (put,)))
                await self._follower.reach(result.revision)
            except StoreFailure as failure:
                logger.debug("a roll call was not answered: %s", failure)
                await asyncio.sleep(AGAIN_S)
        del self._answers[name]

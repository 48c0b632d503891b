"""Ends the registrations of brokers that are known to be dead, before their leases end by themselves.

A broker writes down, under its own lease, which broker's address refused its connections: a few brokers do so at once,
the others only if there is not enough evidence soon after (`planner/evidence.py`). The observer with the lowest id
revokes the lease that it read, once enough brokers have written the same; the next observer does so if the first does
not. A broker's lease is revoked at most once a minute: a living broker with an unreachable address would register and
be revoked without an end.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from cordwood.cluster.authority import Authority
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ImageDelta
from cordwood.cluster.metadata.rows import broker_key, decode_broker, evidence_key
from cordwood.cluster.planner.evidence import Verdict, is_proven, observing_turn, suspected, verdicts
from cordwood.cluster.planner.registration import authority_of
from cordwood.cluster.planner.store_transactions import StoreTxn
from cordwood.cluster.stores.interface import Delete, MetadataStore, Put, StoreFailure

logger = logging.getLogger("cordwood.cluster")

TURN_S = 0.3
"""The wait of an observer for the previous one."""
OBSERVING_TURN_S = 0.3
"""The wait of a group of observers for the earlier groups."""
REVOKED_AGAIN_MS = 60_000


class Evidence:
    """The observations of this broker about others, and their consequences. Belongs to one event loop."""

    def __init__(
        self,
        store: MetadataStore,
        follower: ImageFollower,
        authority: Authority,
        lease_of: Callable[[], int],
        boot_ms: Callable[[], int],
    ) -> None:
        """`lease_of` returns the lease of the broker's present registration; `boot_ms` reads the boot clock."""
        self._store = store
        self._follower = follower
        self._image = follower.image
        self._authority = authority
        self._lease_of = lease_of
        self._boot_ms = boot_ms
        self._revoked_ms: dict[int, int] = {}
        self._under_way: set[tuple[int, int]] = set()
        self._waiting: dict[tuple[int, int], asyncio.TimerHandle] = {}
        """Refused connections that this broker writes down unless others do so first."""
        self._writing: set[StoreTxn] = set()
        """Changes on their way into the image: each further change of the image would write them again."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._follower.watchers.append(self._image_changed)

    async def stop(self) -> None:
        for timer in self._waiting.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def refused(self, broker_id: int, broker_epoch: int) -> None:
        """Notes that a connection to the address of this registration was refused."""
        if (broker_id, broker_epoch) in self._waiting:
            return
        turn = observing_turn(self._image, broker_id)
        if not turn:
            self._write_down(broker_id, broker_epoch)
            return
        loop = asyncio.get_running_loop()
        self._waiting[broker_id, broker_epoch] = loop.call_later(
            turn * OBSERVING_TURN_S, self._write_down, broker_id, broker_epoch
        )

    def _write_down(self, broker_id: int, broker_epoch: int) -> None:
        """Writes the evidence, unless there is enough."""
        self._stop_waiting(broker_id, broker_epoch)
        if self._seen(broker_id, broker_epoch) or not suspected(self._image, broker_id, broker_epoch):
            return
        if is_proven(self._image, broker_id, broker_epoch):
            return
        key = evidence_key(broker_id, broker_epoch, self._image.node_id)
        put = StoreTxn((authority_of(broker_id, broker_epoch),), (Put(key, b"", self._lease_of()),))
        self._change(put)

    def _stop_waiting(self, broker_id: int, broker_epoch: int) -> None:
        timer = self._waiting.pop((broker_id, broker_epoch), None)
        if timer is not None:
            timer.cancel()

    def reached(self, broker_id: int, broker_epoch: int) -> None:
        """Notes that a connection to the address of this registration was made."""
        self._stop_waiting(broker_id, broker_epoch)
        if self._seen(broker_id, broker_epoch):
            self._forget(broker_id, broker_epoch)

    def _seen(self, broker_id: int, broker_epoch: int) -> bool:
        return self._image.node_id in self._image.evidence.get((broker_id, broker_epoch), ())

    def _forget(self, broker_id: int, broker_epoch: int) -> None:
        key = evidence_key(broker_id, broker_epoch, self._image.node_id)
        self._change(StoreTxn((), (Delete(key),)))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _change(self, transaction: StoreTxn) -> None:
        if transaction not in self._writing:
            self._writing.add(transaction)
            self._begin(self._write(transaction))

    async def _write(self, transaction: StoreTxn) -> None:
        try:
            result = await self._authority.transact(transaction)
            await self._follower.reach(result.revision)
        except StoreFailure as failure:
            # The next refused connection, or the end of the lease, has the same effect.
            logger.debug("evidence was not written: %s", failure)
        finally:
            self._writing.discard(transaction)

    def _image_changed(self, delta: ImageDelta) -> None:
        if not (delta.evidence_changed or delta.brokers_changed) or not self._image.evidence:
            return
        for broker_id, broker_epoch in self._image.evidence:
            if self._seen(broker_id, broker_epoch) and not suspected(self._image, broker_id, broker_epoch):
                self._forget(broker_id, broker_epoch)
        for verdict in verdicts(self._image):
            if verdict[:2] not in self._under_way:
                self._under_way.add((verdict.broker_id, verdict.broker_epoch))
                self._begin(self._revoke(verdict))

    async def _revoke(self, verdict: Verdict) -> None:
        broker_id, broker_epoch, turn = verdict
        try:
            await asyncio.sleep(turn * TURN_S)
            last_ms = self._revoked_ms.get(broker_id)
            if last_ms is not None and self._boot_ms() - last_ms < REVOKED_AGAIN_MS:
                return
            item = await self._store.get(broker_key(broker_id))
            # Others may have reached the broker meanwhile, or ended its registration.
            if item is None or not any(each[:2] == (broker_id, broker_epoch) for each in verdicts(self._image)):
                return
            row = decode_broker(item.key, item.value)
            if row.epoch == broker_epoch:
                self._revoked_ms[broker_id] = self._boot_ms()
                await self._store.revoke(item.lease)
                if row.draining:
                    logger.info("broker %d is stopping, and listens no longer: its registration is ended", broker_id)
                else:
                    logger.warning("broker %d refuses connections: its registration is ended", broker_id)
        except StoreFailure as failure:
            logger.warning("the registration of broker %d could not be ended: %s", broker_id, failure)
        finally:
            self._under_way.discard((broker_id, broker_epoch))

"""Runs a broker's transactions: under the authority of its registration, and with unknown outcomes decided.

A transaction of unknown outcome is looked up, never repeated blindly.
"""

import asyncio
from collections.abc import Iterable

from cordwood.cluster.metadata.rows import broker_epoch_key
from cordwood.cluster.planner.registration import authority_of
from cordwood.cluster.planner.store_transactions import Plan, StoreTxn
from cordwood.cluster.stores.interface import Compare, MetadataStore, OutcomeUnknown, StoreFailure, TxnResult, holds

_CONCURRENT_TRANSACTIONS = 64
"""SQLite commits concurrent transactions with one fsync, etcd pipelines them."""

ATTEMPTS_ON_ONE_KEY = 20
"""The number of times that a transaction of one key is planned anew after a failure or an unknown outcome."""


class Fenced(StoreFailure):
    """A later incarnation of this broker has registered: this incarnation must not write any more, and has to stop."""


class Authority:
    """The authority of one incarnation of a broker; before its registration transactions need none."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        self._store = store
        self._compares: tuple[Compare, ...] = ()
        self._transactions = asyncio.Semaphore(_CONCURRENT_TRANSACTIONS)

    def registered(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self._compares = (authority_of(self.broker_id, broker_epoch),)

    async def check(self) -> None:
        """Raises Fenced if a later incarnation has registered."""
        stored = await self._store.get(broker_epoch_key(self.broker_id))
        if not all(holds(compare, stored) for compare in self._compares):
            raise Fenced(
                f"broker {self.broker_id} was registered again by another process; epoch {self.broker_epoch} is over"
            )

    async def commit(self, plan: Plan, *, registers: bool = False) -> TxnResult:
        """Runs a plan's commit. An unknown outcome is decided by reading the commit's keys.

        A registration (`registers`) needs no authority: an attempt of unknown outcome may have ended the epoch.

        A commit that has not happened fails here, and may happen later: its caller plans anew, with comparisons that
        only one of the two passes. Raises OutcomeUnknown if the keys cannot be read.
        """
        try:
            return await (self._store.txn(*plan.commit) if registers else self.transact(plan.commit))
        except OutcomeUnknown as unknown:
            try:
                return await self._look_up(plan.happened)
            except StoreFailure as failure:
                raise OutcomeUnknown(f"{unknown}; reading the keys again: {failure}") from failure

    async def _look_up(self, happened: Iterable[Compare]) -> TxnResult:
        revision = 0
        for compare in happened:
            listing = await self._store.list(compare.key)
            revision = listing.revision
            item = next((item for item in listing.items if item.key == compare.key), None)
            if holds(compare, item):
                return TxnResult(True, revision)
        return TxnResult(False, revision)

    async def attempt(self, transaction: StoreTxn) -> TxnResult:
        """Runs a transaction that is invisible, or that can be given up: an unknown outcome counts as a failure."""
        try:
            return await self.transact(transaction)
        except OutcomeUnknown:
            return TxnResult(False, 0)

    async def transact(self, transaction: StoreTxn) -> TxnResult:
        """Runs a transaction once. Raises StoreFailure."""
        async with self._transactions:
            return await self._store.txn((*transaction.compares, *self._compares), transaction.operations)

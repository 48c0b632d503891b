"""A broker that stops cleanly ends its epoch in the store, or says that it may not have."""

import asyncio
from typing import Any

import pytest

from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import Endpoint
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.registration import Standing
from cordwood.cluster.stores.interface import OutcomeUnknown, StoreFailure, TxnResult
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.settings.broker_settings import BrokerSettings

ENDPOINTS = [Endpoint("PLAINTEXT", "127.0.0.1", 9092)]
LEASE_MS = 100
WARNING = "broker 1 stops, and the end of its epoch 1 may not have reached the metadata store"


class Store(MemoryStore):
    """A store that may be away."""

    failure: type[StoreFailure] | None = None
    hangs = False

    async def txn(self, compares: Any, operations: Any) -> TxnResult:
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure("the store is away")
        return await super().txn(compares, operations)


async def stopped(store: Store, *, noted: bool = True, in_memory: bool = False, cleanly: bool = True) -> None:
    """A broker that started while the store was there, and has stopped. `noted`: its directory takes the note."""

    async def note(broker_epoch: int, *, registers: bool) -> bool:
        return registers or noted

    writer = MetadataWriter(
        store,
        ImageFollower(store, ClusterImage(1, BrokerSettings.from_texts({}))),
        lease_ms=LEASE_MS,
        standing=Standing("storage", clustered=True),
        note_epoch=None if in_memory else note,
    )
    failure, hangs = store.failure, store.hangs
    store.failure, store.hangs = None, False
    await writer.start(ENDPOINTS)
    store.failure, store.hangs = failure, hangs
    await writer.stop(cleanly=cleanly)


@pytest.mark.parametrize("failure", [StoreFailure, OutcomeUnknown])
async def test_a_broker_whose_store_fails_while_it_stops_warns_of_copies(
    failure: type[StoreFailure], caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    store.failure = failure
    await stopped(store)
    assert WARNING in caplog.text
    assert "Do not put such a copy back" in caplog.text


async def test_a_broker_whose_store_does_not_answer_while_it_stops_warns_of_copies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    store.hangs = True
    await stopped(store)
    assert WARNING in caplog.text


async def test_a_broker_whose_directory_does_not_take_the_end_of_its_epoch_warns_of_copies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await stopped(Store(), noted=False)
    assert WARNING in caplog.text


async def test_a_broker_that_ends_its_epoch_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    await stopped(store)
    epoch = await store.get("broker_epoch/1")
    assert epoch is not None
    assert epoch.value == b"2"
    assert caplog.text == ""


@pytest.mark.parametrize("options", [{"in_memory": True}, {"cleanly": False}])
async def test_a_broker_without_a_directory_or_after_a_failure_ends_no_epoch_and_warns_of_nothing(
    options: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    await stopped(store, **options)
    assert caplog.text == ""

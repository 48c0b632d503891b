"""The key of delegation tokens: the brokers of a cluster have the same one, or none."""

import logging
from base64 import b64encode
from collections.abc import Sequence

import pytest

from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import TOKEN_KEY, Endpoint
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.registration import OtherTokenKey, Standing
from cordwood.cluster.stores.interface import Compare, Operation, Put, TxnResult
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.security.token_secrets import TokenSecrets

ENDPOINTS = [Endpoint("PLAINTEXT", "127.0.0.1", 9092)]
OLD, NEW = (TokenSecrets(letter * 32) for letter in (b"o", b"n"))


async def started(store: MemoryStore, broker_id: int, secrets: TokenSecrets | None = OLD) -> MetadataWriter:
    image = ClusterImage(broker_id, BrokerSettings.from_texts({"node.id": str(broker_id)}))
    writer = MetadataWriter(
        store,
        ImageFollower(store, image),
        lease_ms=60_000,
        standing=Standing(f"storage {broker_id}", clustered=True),
        token_key="" if secrets is None else secrets.fingerprint,
    )
    await writer.start(ENDPOINTS)
    return writer


async def test_brokers_with_the_same_key_and_brokers_without_one_share_a_cluster() -> None:
    store = MemoryStore()
    writers = [await started(store, 1), await started(store, 2, None), await started(store, 3)]
    assert set(writers[2].image.brokers) == {1, 2, 3}
    for writer in writers:
        await writer.stop()


async def test_a_broker_with_another_key_is_refused_by_its_fingerprint() -> None:
    store = MemoryStore()
    first = await started(store, 1)
    with pytest.raises(OtherTokenKey, match=rf"{OLD.fingerprint}.*{NEW.fingerprint}.*delegation|fingerprint"):
        await started(store, 2, NEW)
    assert await store.get("brokers/2") is None
    await first.stop()


async def test_a_key_changes_while_no_other_broker_is_registered(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    await (await started(store, 1)).stop()
    with caplog.at_level(logging.WARNING):
        second = await started(store, 2, NEW)
    assert "tokens that were made before are useless" in caplog.text
    with pytest.raises(OtherTokenKey):
        await started(store, 1)
    await second.stop()


async def test_of_two_brokers_that_start_together_with_different_keys_one_is_refused() -> None:
    """The other one registers between this one's look at the brokers and its commit."""

    class Overtaken(MemoryStore):
        other: MetadataWriter | None = None

        async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
            registers = any(isinstance(each, Put) and each.key == "brokers/2" for each in operations)
            if registers and self.other is None:
                self.other = await started(self, 1)
            return await super().txn(compares, operations)

    store = Overtaken()
    await (await started(store, 3)).stop()
    with pytest.raises(OtherTokenKey):
        await started(store, 2, NEW)
    assert store.other is not None
    await store.other.stop()


async def test_the_store_has_the_fingerprint_and_not_the_key() -> None:
    store = MemoryStore()
    writer = await started(store, 1)
    stored = await store.get(TOKEN_KEY)
    assert stored is not None
    assert stored.value.decode() == OLD.fingerprint
    rows = b" ".join(item.value for item in (await store.list("")).items)
    assert b"o" * 32 not in rows
    assert b64encode(b"o" * 32) not in rows
    await writer.stop()

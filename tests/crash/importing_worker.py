"""Imports a data directory as a process of its own, and kills that process behind a step, or before its n-th change.

    python -m tests.crash.importing_worker DIRECTORY CLUSTER STORE STEP|CHANGES

CHANGES -1 is no kill. Prints the number of changes.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from tests.crash.arranging_worker import Changes, DyingFilesystem

from cordwood.broker.importing.steps import Import
from cordwood.broker.storage.import_note import Note, read_note
from cordwood.broker.storage.storage import open_store
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.model.settings.broker_settings import BrokerSettings


class DyingBehind:
    """A metadata store that kills its process before a transaction, or while the answer is on its way."""

    def __init__(self, store: Any, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def txn(self, *transaction: Any) -> Any:
        self._changes.one_more()
        result = await self._store.txn(*transaction)
        self._changes.one_more()
        return result


async def main(directory: str, cluster: str, store_url: str, until: str) -> None:
    most = int(until) if until.lstrip("-").isdecimal() else -1
    changes = Changes(most)
    logs = DataDirectory(DyingFilesystem(directory, changes), directory)
    logs.take()
    owner = logs.identity()
    assert owner is not None
    texts = {"cluster.name": cluster, "cluster.store": store_url, "node.id": str(owner.node_id)}
    settings = BrokerSettings.from_texts(texts)
    store = await open_store(settings)
    note = read_note(logs.filesystem, logs.path)
    if note is None:
        note = Note(os.urandom(16).hex(), cluster, store_url, owner.node_id)

    def after(step: str) -> None:
        if step == until:
            os.kill(os.getpid(), signal.SIGKILL)

    await Import(logs, owner, DyingBehind(store, changes), settings, note).run(after)
    await store.close()
    logs.release()
    print(changes.made)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

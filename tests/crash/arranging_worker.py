"""Arranges a data directory for workers as a process of its own, and kills that process before its n-th change.

    python -m tests.crash.arranging_worker DIRECTORY WORKERS CHANGES

WORKERS 0 is a broker alone; CHANGES -1 is no kill. Prints the number of changes.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from cordwood.broker.storage.storage import open_own_store
from cordwood.broker.workers.arranging import arrange_offline, take_for_workers
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.model.settings.broker_settings import BrokerSettings


class Changes:
    """Counts changes, and kills this process before the last one that it may make."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.made = 0

    def one_more(self) -> None:
        if self.made == self._most:
            os.kill(os.getpid(), signal.SIGKILL)
        self.made += 1


class DyingFilesystem(OsFilesystem):
    def __init__(self, path: str, changes: Changes) -> None:
        super().__init__(path)
        self._changes = changes

    def rename(self, old: str, new: str) -> None:
        self._changes.one_more()
        super().rename(old, new)

    def replace(self, path: str, data: bytes) -> None:
        self._changes.one_more()
        super().replace(path, data)

    def remove(self, path: str) -> None:
        self._changes.one_more()
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self._changes.one_more()
        super().remove_tree(path)

    def make_directory(self, path: str) -> None:
        self._changes.one_more()
        super().make_directory(path)


class DyingStore:
    """A metadata store that kills its process before a transaction."""

    def __init__(self, store: Any, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        if name == "txn":
            self._changes.one_more()
        return getattr(self._store, name)


async def main(directory: str, workers: int, most: int) -> None:
    changes = Changes(most)
    filesystem = DyingFilesystem(directory, changes)
    logs = DataDirectory(filesystem, directory)
    logs.take()
    store = DyingStore(await open_own_store(logs), changes)
    if workers:
        await take_for_workers(logs, store, 1)
    brokers = range(1, max(workers, 1) + 1)
    settings = BrokerSettings.from_texts({"node.id": "1"})
    await arrange_offline(logs, store, brokers, settings, alone=not workers)
    await store.close()
    logs.release()
    print(changes.made)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

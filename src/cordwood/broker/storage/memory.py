"""The memory that holds the data of a broker without a disk. A later broker on the same memory finds the data."""

from cordwood.broker.machine.clocks import boot_ms
from cordwood.cluster.stores.leases import Leases
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.log.files.memory_filesystem import MemoryFilesystem


class Memory:
    def __init__(self) -> None:
        self.filesystem = MemoryFilesystem()
        self._metadata = MemoryStore(boot_ms=boot_ms, leases=Leases(forgives_pauses=True))

    def open_metadata(self) -> MemoryStore:
        """Opens the metadata store. One broker at a time uses the store."""
        self._metadata = self._metadata.reopened()
        return self._metadata

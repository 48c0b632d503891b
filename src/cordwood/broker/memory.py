"""The memory that holds the data of a broker without a disk. A later broker on the same memory finds the data."""

from cordwood.cluster.stores.memory import MemoryStore
from cordwood.log.memory_filesystem import MemoryFilesystem


class Memory:
    def __init__(self) -> None:
        self.filesystem = MemoryFilesystem()
        self._metadata = MemoryStore()

    def open_metadata(self) -> MemoryStore:
        """Opens the metadata store. One broker at a time uses the store."""
        self._metadata = self._metadata.reopened()
        return self._metadata

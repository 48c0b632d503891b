"""What a broker without a disk keeps its data in. It outlives the broker: the next one on it finds what was written."""

from cordwood.cluster.stores.memory import MemoryStore
from cordwood.log.memory_filesystem import MemoryFilesystem


class Memory:
    def __init__(self) -> None:
        self.filesystem = MemoryFilesystem()
        self._metadata = MemoryStore()

    def open_metadata(self) -> MemoryStore:
        """The metadata store, open. One broker at a time uses it."""
        self._metadata = self._metadata.reopened()
        return self._metadata

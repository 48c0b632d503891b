"""CRC-32C (Castagnoli), the checksum of batches and snapshots, in hardware where the processor has it.

The `crc32c` package looks up its own version when it is imported; that alone takes tens of milliseconds and several
megabytes (it brings in importlib.metadata and email), more than the rest of a broker's start. The package's compiled
module needs none of that, so it is loaded by itself; if that fails, the package is imported as usual.
"""

import importlib.machinery
import importlib.util
from collections.abc import Callable
from typing import cast

Checksum = Callable[[bytes | bytearray | memoryview], int]


def _load() -> Checksum:
    package = importlib.util.find_spec("crc32c")  # finds the package without importing it
    if package is not None and package.submodule_search_locations:
        spec = importlib.machinery.PathFinder.find_spec("_crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return cast("Checksum", module.crc32c)
    import crc32c as whole_package

    return cast("Checksum", whole_package.crc32c)


crc32c = _load()

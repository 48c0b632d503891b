"""`cordwood` as on a machine whose boot has the id in a file, and whose disk may fail.

    python -m tests.cluster.faults.on_a_boot FILE serve ...

A power cut that takes one file system of a running machine does not change the machine's boot id; this does. While
there is a file FILE.unreadable, every read of a file fails with EIO.
"""

import errno
import os
import sys
from collections.abc import Callable
from typing import Any

from cordwood.broker.storage import cluster_witness
from cordwood.cli import main


def fail_while_there_is(path: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        if os.access(path, os.F_OK):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*arguments)

    return call


if __name__ == "__main__":
    boot = sys.argv.pop(1)
    cluster_witness._BOOT_ID = boot
    for name in ("pread", "preadv", "sendfile"):
        setattr(os, name, fail_while_there_is(f"{boot}.unreadable", getattr(os, name)))
    main()

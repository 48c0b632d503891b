"""Replaces a file as a whole: a reader finds the old content or the new, and after a power cut the new."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    # Hadoop keeps a checksum beside each file that it writes, which would no longer match.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    for directory in (path.parent, path.parent.parent):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

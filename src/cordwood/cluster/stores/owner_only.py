"""Files for the broker's user alone. The metadata store has the keys by which brokers prove themselves to each other: a
local user who reads them could act as a broker."""

import logging
import os
import stat
from typing import Final

OWNER_ONLY: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

logger = logging.getLogger("cordwood.metadata")


def create_for_owner(path: str) -> None:
    """Creates an empty file that only its owner may read and write; a file that exists stays. Raises OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY))


def keep_to_owner(path: str) -> None:
    """Takes the rights of all but the owner from an existing file: earlier releases left them to the umask. A file of
    another user stays as it is, with a warning: only its owner may change it."""
    try:
        mode = os.stat(path).st_mode
        if mode & _OTHERS:
            os.chmod(path, stat.S_IMODE(mode) & ~_OTHERS)
    except FileNotFoundError:
        pass
    except PermissionError as refused:
        logger.warning("%s has keys of brokers, and users other than its owner may read it: %s", path, refused)

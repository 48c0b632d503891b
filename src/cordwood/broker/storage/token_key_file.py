"""The file with the secret key of delegation tokens: read once, at the start."""

from __future__ import annotations

import logging
import os
import stat
from typing import Final

from cordwood.model.errors import BadKeys
from cordwood.model.settings.token_settings import TOKEN_KEY_FILE

logger = logging.getLogger("cordwood.broker")

FEWEST_BYTES: Final = 32
"""A holder of one token has the HMAC of a known text: a shorter key could be guessed."""
MOST_BYTES: Final = 1024


def read_token_key(path: str) -> bytes:
    """The key, without white space at its ends. Raises BadKeys."""
    try:
        with open(path, "rb") as file:
            key = file.read(MOST_BYTES + 2).strip()
            mode = os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise BadKeys(f"{TOKEN_KEY_FILE}={path} cannot be read: {error.strerror}") from None
    if not FEWEST_BYTES <= len(key) <= MOST_BYTES:
        raise BadKeys(
            f"{TOKEN_KEY_FILE}={path} has a key of {len(key)} bytes, and a key has {FEWEST_BYTES} to {MOST_BYTES}: "
            "`openssl rand -base64 32` makes one"
        )
    if stat.S_IMODE(mode) & (stat.S_IROTH | stat.S_IWOTH):
        logger.warning(
            "everybody on this machine can read the key of delegation tokens, and log in as anybody who has one: "
            "chmod 600 %s",
            path,
        )
    return key

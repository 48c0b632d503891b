"""The query's id, from its checkpoint: for the one moment at which a driver has no report of a task to learn it from.

If all tasks of a micro-batch were killed, the driver's `abort` is told nothing but options. What the tasks have open
would then stay open until it times out, and readers of committed records would wait. Where the checkpoint is a
directory of this machine, the id can be read from it; elsewhere it is left to time.
"""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit


def query_id_of(checkpoint: str | None) -> str | None:
    """None if it cannot be known here."""
    if not checkpoint:
        return None
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        return None
    directory = Path(unquote(parts.path) if parts.scheme else checkpoint)
    try:
        found = json.loads((directory / "metadata").read_text())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)

"""Where a query's checkpoint is, if that is a directory of this machine, and the query's id in it."""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit


def local_directory(checkpoint: str | None) -> Path | None:
    """None for a checkpoint that is elsewhere or that nobody has named. Without a scheme a path is whatever Hadoop's
    default file system makes of it: it is taken for a directory of this machine if there is one with a checkpoint."""
    if not checkpoint:
        return None
    parts = urlsplit(checkpoint)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    directory = Path(checkpoint)
    is_here = not parts.scheme and any((directory / name).exists() for name in ("metadata", "offsets"))
    return directory if is_here else None


def query_id_of(directory: Path | None) -> str | None:
    """None if the checkpoint does not tell."""
    if directory is None:
        return None
    try:
        found = json.loads((directory / "metadata").read_text())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)

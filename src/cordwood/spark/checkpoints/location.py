"""The directory of a query's checkpoint, if it is on this machine, and the query's id in it."""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit


def local_directory(checkpoint: str | None) -> Path | None:
    """The checkpoint's directory; None if it is elsewhere or not named. Hadoop's default file system decides what a
    path without a scheme means: such a path counts as a directory of this machine if that holds a checkpoint."""
    if not checkpoint:
        return None
    parts = urlsplit(checkpoint)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    directory = Path(checkpoint)
    is_here = not parts.scheme and any((directory / name).exists() for name in ("metadata", "offsets"))
    return directory if is_here else None


def query_id_of(directory: Path | None) -> str | None:
    """The query's id; None if the checkpoint does not tell."""
    if directory is None:
        return None
    try:
        found = json.loads((directory / "metadata").read_text())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)

"""A query's checkpoint: its directory on this machine, the id of its query, and a second witness of both.

The witness is `cordwood-sink.json`, beside Spark's `metadata`. A checkpoint that lost its `metadata` silently gets a
new query id from Spark, and under a new id everything is written again. The witness is durable before the first batch
is decided.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from cordwood.spark.checkpoints.syncing import replace_in_checkpoint


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


NAME: Final = "cordwood-sink.json"


@dataclass(frozen=True)
class Owner:
    query_id: str
    family: str
    """The name under which the broker remembers the query's batches."""


def read_owner(checkpoint: Path) -> Owner | None:
    """The owner; None if the witness is missing or unreadable: then `metadata` is the only witness."""
    try:
        found = json.loads((checkpoint / NAME).read_text(encoding="utf-8"))
        return Owner(str(found["query_id"]), str(found["family"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def has_owner(checkpoint: Path) -> bool:
    """True if there is a witness, readable or not."""
    return (checkpoint / NAME).exists()


def write_owner(checkpoint: Path, owner: Owner) -> None:
    """Writes the witness, which is durable on return."""
    replace_in_checkpoint(checkpoint / NAME, json.dumps(asdict(owner)).encode())

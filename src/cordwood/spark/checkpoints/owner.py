"""A second witness of a checkpoint's owner: `cordwood-sink.json`, beside Spark's `metadata`.

A checkpoint that lost its `metadata` silently gets a new query id from Spark, and under a new id everything is written
again. The witness is durable before the first batch is decided.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from cordwood.spark.checkpoints.syncing import replace_in_checkpoint

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

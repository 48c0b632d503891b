"""A second witness of whose checkpoint this is: `cordwood-sink.json`, beside Spark's `metadata`.

A checkpoint whose `metadata` is lost gets a new query id from Spark, without a word, and under a new id everything is
written again. The witness is there, durably, before the first batch is decided.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from cordwood.spark.checkpoints.replacing import replace_file

NAME: Final = "cordwood-sink.json"


@dataclass(frozen=True)
class Owner:
    query_id: str
    family: str
    """Under which the broker remembers the query's batches."""


def read_owner(checkpoint: Path) -> Owner | None:
    """None if there is none, or none that can be read: then `metadata` is the only witness."""
    try:
        found = json.loads((checkpoint / NAME).read_text(encoding="utf-8"))
        return Owner(str(found["query_id"]), str(found["family"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def has_owner(checkpoint: Path) -> bool:
    """Also if it cannot be read."""
    return (checkpoint / NAME).exists()


def write_owner(checkpoint: Path, owner: Owner) -> None:
    """Durable when it returns."""
    replace_file(checkpoint / NAME, json.dumps(asdict(owner)).encode())

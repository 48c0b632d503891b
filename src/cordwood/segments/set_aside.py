"""A partition's directory that was set aside: its name, and the note in it.

A broker sets a directory aside if its metadata does not know the partition and has no tombstone. The name ends as
Kafka's stray directories do: `orders-0.3-stray`. The number keeps directories of one partition apart, and long names
are cut to what a filesystem takes, so the note has the partition's whole name. The note also has the partition's
offsets from the data directory's checkpoints: without them, deleted records would return with the directory.
"""

import json
import zlib
from typing import NamedTuple

from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.records.batch import Buffer
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.partition_metadata import parse_topic_id, topic_id_text

NOTE_FILE = "set-aside.json"

SET_ASIDE = "-stray"
"""The suffix of a directory that was set aside."""

LONGEST_PART = 235
"""The longest part of a partition's name: a file name has at most 255 bytes."""


class Note(NamedTuple):
    """The facts about a partition when it was set aside. An offset is None if no checkpoint had it."""

    partition: TopicPartition
    topic_id: TopicId | None
    """The topic id; None: unreadable."""
    reason: str
    time_ms: int
    recovery_point: int | None = None
    log_start_offset: int | None = None
    cleaned_to: int | None = None
    until_in_sync: bool = False
    """True if the partition is filled anew here from its leader: once it is in sync, the directory is removed."""


def set_aside_name(partition: str, number: int) -> str:
    return f"{partition[:LONGEST_PART]}.{number}{SET_ASIDE}"


def set_aside_part(name: str) -> str | None:
    """The part of a partition's name in the name of a directory that was set aside; None for other directories."""
    part, _, number = name.removesuffix(SET_ASIDE).rpartition(".")
    return part if name.endswith(SET_ASIDE) and part and number.isdecimal() else None


def encode_note(note: Note) -> bytes:
    """The note as JSON, with a checksum of its fields."""
    fields = {
        **note._asdict(),
        "partition": str(note.partition),
        "topic_id": None if note.topic_id is None else topic_id_text(note.topic_id),
    }
    if not note.until_in_sync:
        del fields["until_in_sync"]  # releases that do not know the field would take the note for damaged
    return (json.dumps({**fields, "checksum": _checksum(fields)}, indent=2) + "\n").encode()


def decode_note(data: Buffer) -> Note:
    """Reads a note. DamagedCheckpoint if `encode_note` did not write it."""
    try:
        fields = json.loads(bytes(data))
        if fields.pop("checksum") != _checksum(fields):
            raise ValueError("the checksum is not that of its fields")
        fields["partition"] = TopicPartition.parse(fields["partition"])
        if fields["topic_id"] is not None:
            fields["topic_id"] = parse_topic_id(fields["topic_id"])
        return Note(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpoint(f"{NOTE_FILE}: {error}") from None


def _checksum(fields: dict[str, object]) -> str:
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True).encode()):08x}"

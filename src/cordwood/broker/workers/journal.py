"""`partition-moves`: the moves between homes that are under way, written before the first of them.

Every step of the moves can be repeated. A start that finds the file first carries out all its steps: whichever step a
crash followed, each partition is in one home, with its offsets.
"""

import json
from typing import Any, NamedTuple

from cordwood.log.directory.data_directory import MOVES_FILE
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.model.notes import decode_note, encode_note
from cordwood.segments.filesystem import Filesystem, read_if_there

_VERSION = 1


class Move(NamedTuple):
    """One partition that changes its home. An offset is None if no checkpoint has it."""

    partition: TopicPartition
    topic_id: str
    source: str
    destination: str
    recovery_point: int | None = None
    log_start_offset: int | None = None
    cleaned_to: int | None = None
    durable_end: int | None = None


class Moves(NamedTuple):
    """The moves of one start. Homes are paths relative to the data directory, whose own path is empty."""

    moves: tuple[Move, ...]
    rows: dict[str, str]
    """Keys of the metadata store, and the values that they get."""
    made: dict[int, str]
    """New homes by broker, and their storage ids."""
    dissolved: tuple[str, ...]
    """Homes that are given up. Their other content goes to `first_home`, or to the data directory."""
    first_home: str
    clean: tuple[str, ...]
    """The homes whose logs were all closed cleanly."""

    @property
    def anything_to_do(self) -> bool:
        return bool(self.moves or self.rows or self.made or self.dissolved)


def write_journal(filesystem: Filesystem, root: str, moves: Moves) -> None:
    fields = {**moves._asdict(), "version": _VERSION, "made": list(moves.made.items())}
    fields["moves"] = [[str(move.partition), *move[1:]] for move in moves.moves]
    body = json.dumps(fields, separators=(",", ":")).encode()
    filesystem.replace(f"{root}/{MOVES_FILE}", encode_note(body))


def read_journal(filesystem: Filesystem, root: str) -> Moves | None:
    """The journal; None if no moves are under way. Raises StorageFailure if the file is damaged."""
    data = read_if_there(filesystem, f"{root}/{MOVES_FILE}")
    if data is None:
        return None
    if (body := decode_note(data)) is None:
        raise StorageFailure(
            f"{root}/{MOVES_FILE} is damaged: partitions were being moved between the homes of workers, and which is "
            "not known. Restore the file from a backup"
        )
    fields: dict[str, Any] = json.loads(body)
    if fields.pop("version") != _VERSION:
        raise StorageFailure(f"{root}/{MOVES_FILE} was written by another version: finish the start with that one")
    return Moves(
        tuple(Move(TopicPartition.parse(name), *rest) for name, *rest in fields["moves"]),
        fields["rows"],
        {int(broker): storage_id for broker, storage_id in fields["made"]},
        tuple(fields["dissolved"]),
        fields["first_home"],
        tuple(fields["clean"]),
    )

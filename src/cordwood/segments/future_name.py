"""The directory into which a partition's log is copied when it moves to another data directory: `orders-0.<id>-future`.

The name ends as Kafka's does. Long names are cut to what a filesystem takes; the note in the directory has the
partition's whole name (segments/set_aside.py). The note is written last: a directory without one is an unfinished copy.
"""

FUTURE = "-future"
_ID_LENGTH = 32
_LONGEST_PART = 255 - len(FUTURE) - _ID_LENGTH - 1


def future_name(partition: str, unique_id: str) -> str:
    """The directory's name. `unique_id`: 32 hexadecimal digits."""
    assert len(unique_id) == _ID_LENGTH, unique_id
    return f"{partition[:_LONGEST_PART]}.{unique_id}{FUTURE}"


def future_part(name: str) -> str | None:
    """The part of a partition's name in the name of a future directory; None for other directories."""
    part, _, unique_id = name.removesuffix(FUTURE).rpartition(".")
    return part if name.endswith(FUTURE) and part and len(unique_id) == _ID_LENGTH else None

"""One damage to one file of a stopped broker's data directory, chosen by a seed: what disks, people and backups do."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PAGE = 4096


class Damage(NamedTuple):
    kind: str
    file: Path
    """Relative to the data directory."""
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} {self.file} {self.detail}"


def flip_a_bit(path: Path, older: Path, chance: random.Random) -> str | None:
    data = bytearray(path.read_bytes())
    if not data:
        return None
    place, bit = chance.randrange(len(data)), chance.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place} of {len(data)}"


def truncate(path: Path, older: Path, chance: random.Random) -> str | None:
    size = path.stat().st_size
    if not size:
        return None
    left = chance.choice([0, chance.randrange(size), max(size - chance.randint(1, 200), 0)])
    with path.open("r+b") as file:
        file.truncate(left)
    return f"to {left} of {size} bytes"


def zero_a_page(path: Path, older: Path, chance: random.Random) -> str | None:
    """The last page, as a power cut leaves it, or another."""
    data = bytearray(path.read_bytes())
    if not data:
        return None
    pages = (len(data) - 1) // PAGE
    start = PAGE * chance.choice([pages, chance.randint(0, pages)])
    end = min(start + PAGE, len(data))
    if not any(data[start:end]):
        return None
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    return f"bytes {start} to {end} of {len(data)}"


def remove(path: Path, older: Path, chance: random.Random) -> str | None:
    path.unlink()
    return ""


def put_back_older(path: Path, older: Path, chance: random.Random) -> str | None:
    if not older.exists() or older.read_bytes() == path.read_bytes():
        return None
    size = path.stat().st_size
    path.write_bytes(older.read_bytes())
    return f"of {older.stat().st_size} bytes instead of {size}"


KINDS: dict[str, Callable[[Path, Path, random.Random], str | None]] = {
    "flip": flip_a_bit,
    "truncate": truncate,
    "zero": zero_a_page,
    "remove": remove,
    "older": put_back_older,
}


def harm(data_dir: Path, older_dir: Path, chance: random.Random) -> Damage:
    """Damages one file. `older_dir`: the directory as it was at an earlier time, as far as it was there.

    The kinds of files have equal chances: there are a hundred segments and one metadata store.
    """
    by_kind: dict[str, list[Path]] = {}
    for path in sorted(data_dir.rglob("*")):
        if path.is_file() and path.name != ".lock":
            family = "internal " if path.parent.name.startswith("__") else ""
            by_kind.setdefault(family + (path.suffix if path.stem.isdecimal() else path.name), []).append(path)
    while True:
        path = chance.choice(by_kind[chance.choice(sorted(by_kind))])
        kind = chance.choice(sorted(KINDS))
        file = path.relative_to(data_dir)
        detail = KINDS[kind](path, older_dir / file, chance)
        if detail is not None:
            return Damage(kind, file, detail)

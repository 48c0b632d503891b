"""Proves that a store's files are whole before SQLite opens them. The check changes nothing.

The file and its write-ahead log are read and put together in memory. SQLite checks the structure of that image. Every
row has a checksum, and the state has the number of rows and the sum of their checksums: so a changed value and a
vanished row are both found.
"""

import sqlite3
import zlib
from typing import NamedTuple

from cordwood.cluster.stores.interface import StoreFailure
from cordwood.cluster.stores.wal import DamagedStore, read_wal

FORMAT_VERSION = 3
"""A number more than one flipped bit away from 0, the format of an empty file."""
FORMAT_WITHOUT_CHECKSUMS = 1
_SUM_MASK = 2**62 - 1
_HEADER_SIZE = 100
_JOURNAL_MODES = slice(18, 20)


class State(NamedTuple):
    """The one row of the table `state`."""

    revision: int
    compact_revision: int
    row_count: int = 0
    row_sum: int = 0

    def with_rows(self, count: int, checksums: int) -> "State":
        return self._replace(row_count=self.row_count + count, row_sum=(self.row_sum + checksums) & _SUM_MASK)

    @property
    def checksum(self) -> int:
        return zlib.crc32(repr(tuple(self)).encode())


def row_checksum(key: str, value: bytes | None, create_revision: int, mod_revision: int) -> int:
    head = f"{key}\0{create_revision}\0{mod_revision}\0{value is None}\0"
    return zlib.crc32(value or b"", zlib.crc32(head.encode()))


def read_image(path: str, *, believe_damaged_wal: bool = False, without_wal: bool = False) -> bytes:
    """The database as SQLite would see it, put together from the file and its log. Empty without a database."""
    database, wal = _read(path), b"" if without_wal else _read(f"{path}-wal")
    overlay = read_wal(wal, f"{path}-wal", believe_damaged=believe_damaged_wal)
    if overlay is not None and not believe_damaged_wal and not overlay.can_complete(database):
        expected = overlay.page_count * overlay.page_size
        raise DamagedStore(f"{path} is damaged: it ends after {len(database)} bytes of {expected}")
    image = database if overlay is None else overlay.over(database)
    if len(image) < _HEADER_SIZE:
        return b""
    if image[_JOURNAL_MODES] != b"\2\2":
        return image
    # A database in memory has no write-ahead log, so its header must not name one.
    changed = bytearray(image)
    changed[_JOURNAL_MODES] = b"\1\1"
    return bytes(changed)


def verify(image: bytes, path: str) -> State | None:
    """The state of a store that is whole; None for an empty store, or a format without checksums. Raises
    DamagedStore."""
    if not image:
        return None
    if image.startswith(b"SQLite") and image[_JOURNAL_MODES] != b"\1\1":
        raise DamagedStore(f"{path} is damaged: its header names journal modes {image[_JOURNAL_MODES].hex()}")
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(image)
        return _verified(connection, path)
    except StoreFailure:
        raise
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        raise DamagedStore(f"{path} is damaged: {error}") from error
    finally:
        connection.close()


def values_at_rest(path: str) -> dict[str, bytes]:
    """The current values in a store that is not open, by key; none without a store. Changes nothing. Raises
    StoreFailure."""
    image = read_image(path)
    verify(image, path)
    if not image:
        return {}
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(image)
        rows = connection.execute("SELECT key, value FROM history ORDER BY mod_revision").fetchall()
    except sqlite3.Error as error:
        raise DamagedStore(f"{path} is damaged: {error}") from error
    finally:
        connection.close()
    return {key: value for key, value in dict(rows).items() if value is not None}


def best_image(path: str) -> tuple[bytes, State] | None:
    """The newest whole state in the files of a damaged store, with the database that has it; None if there is none."""
    found: list[tuple[int, bytes, State]] = []
    for without_wal in (False, True):
        try:
            image = read_image(path, believe_damaged_wal=True, without_wal=without_wal)
            state = verify(image, path)
        except StoreFailure:
            continue
        if state is not None:
            found.append((state.revision, image, state))
    if not found:
        return None
    _, image, state = max(found, key=lambda each: each[0])
    return image, state


def _verified(connection: sqlite3.Connection, path: str) -> State | None:
    execute = connection.execute
    (found,) = execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise DamagedStore(f"{path} is damaged: {found}")
    (version,) = execute("PRAGMA user_version").fetchone()
    (tables,) = execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if version == 0 and not tables:
        return None
    if version == FORMAT_WITHOUT_CHECKSUMS:
        return None
    if version != FORMAT_VERSION:
        raise StoreFailure(f"{path} has format {version}; this version of Cordwood reads {FORMAT_VERSION}")
    state = read_state(connection, path)
    count = checksums = 0
    for key, value, created, modified, checksum in execute(
        "SELECT key, value, create_revision, mod_revision, checksum FROM history"
    ):
        if row_checksum(key, value, created, modified) != checksum:
            raise DamagedStore(
                f"{path} is damaged: the value of {key!r} at revision {modified} is not what was written"
            )
        count += 1
        checksums += checksum
    if (count, checksums & _SUM_MASK) != (state.row_count, state.row_sum):
        raise DamagedStore(f"{path} is damaged: {count} rows are there, and {state.row_count} were written")
    return state


def read_state(connection: sqlite3.Connection, path: str) -> State:
    rows = connection.execute("SELECT revision, compact_revision, row_count, row_sum, checksum FROM state").fetchall()
    if len(rows) != 1 or not all(isinstance(number, int) for number in rows[0]):
        raise DamagedStore(f"{path} is damaged: its state is {rows}")
    state = State(*rows[0][:4])
    if state.checksum != rows[0][4]:
        raise DamagedStore(f"{path} is damaged: the checksum of its state is wrong")
    return state


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""

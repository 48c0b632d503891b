"""Positions beside effects in a database: who takes a partition last writes, and nobody writes twice."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cordwood.consumer.positions import Held, Place, SqlPositions

PLACE = Place("billing", "orders", "id-1", 0)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "effects.db"


def positions(database: Path) -> SqlPositions:
    """Of one consumer, with its own connection."""
    made = SqlPositions(sqlite3.connect(database))
    made.create_table()
    return made


def advance(consumer: SqlPositions, held: Held, next_offset: int) -> bool:
    with consumer.transaction() as cursor:
        return consumer.advance(cursor, PLACE, held, next_offset)


def test_a_group_begins_where_it_is_told_and_goes_on_where_it_was(database: Path) -> None:
    consumer = positions(database)
    held = consumer.take(PLACE, lambda: 7)
    assert held.next_offset == 7
    assert advance(consumer, held, 12)
    assert positions(database).take(PLACE, lambda: pytest.fail("it is not asked again")).next_offset == 12


def test_who_took_a_partition_first_can_no_longer_write(database: Path) -> None:
    old, young = positions(database), positions(database)
    held_by_old = old.take(PLACE, lambda: 0)
    held_by_young = young.take(PLACE, lambda: 0)
    assert not advance(old, held_by_old, 5)
    assert advance(young, held_by_young, 5)
    assert not advance(young, held_by_young, 5), "a position is left only once"


def test_a_commit_whose_answer_was_lost_is_not_made_again(database: Path) -> None:
    consumer = positions(database)
    held = consumer.take(PLACE, lambda: 0)
    assert advance(consumer, held, 5)
    assert not advance(consumer, held, 5)
    assert consumer.take(PLACE, lambda: 0).next_offset == 5


def test_what_fails_leaves_neither_effect_nor_position(database: Path) -> None:
    consumer = positions(database)
    with consumer.transaction() as cursor:
        cursor.execute("create table effects (value text)")
    held = consumer.take(PLACE, lambda: 0)

    def fail() -> None:
        with consumer.transaction() as cursor:
            assert consumer.advance(cursor, PLACE, held, 1)
            cursor.execute("insert into effects values ('half')")
            raise RuntimeError("the handler")

    with pytest.raises(RuntimeError, match="the handler"):
        fail()
    with consumer.transaction() as cursor:
        cursor.execute("select count(*) from effects")
        assert cursor.fetchone() == (0,)
    assert advance(consumer, held, 1)


def test_partitions_groups_and_topics_are_told_apart(database: Path) -> None:
    consumer = positions(database)
    places = [
        PLACE,
        PLACE._replace(partition=1),
        PLACE._replace(group="audit"),
        PLACE._replace(topic_id="id-2"),  # deleted and created anew, under the same name
    ]
    for start, place in enumerate(places):
        assert consumer.take(place, lambda start=start: start).next_offset == start  # type: ignore[misc]


def test_a_row_that_another_inserts_at_the_same_moment_is_taken_as_it_is(database: Path) -> None:
    one, other = positions(database), positions(database)

    def start() -> int:
        assert other.take(PLACE, lambda: 3).next_offset == 3
        return 9

    assert one.take(PLACE, start).next_offset == 3


class Percent:
    """A connection of a driver with another paramstyle."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.rowcount = 1

    def cursor(self) -> "Percent":
        return self

    def execute(self, statement: str, parameters: Any = ()) -> None:
        assert statement.count("%s") == len(parameters)
        self.statements.append(statement)

    def fetchone(self) -> tuple[int, int]:
        return 4, 2

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


def test_other_paramstyles_are_spoken() -> None:
    connection = Percent()
    consumer = SqlPositions(connection, "pyformat")
    assert consumer.take(PLACE, lambda: 0) == (4, 2)
    assert advance(consumer, Held(4, 2), 5)
    assert not any("?" in statement for statement in connection.statements)


def test_connections_that_cannot_keep_the_two_together_are_refused(database: Path) -> None:
    with pytest.raises(ValueError, match="commits every statement"):
        SqlPositions(sqlite3.connect(database, isolation_level=None))
    with pytest.raises(ValueError, match="paramstyle"):
        SqlPositions(Percent(), "named")
    with pytest.raises(ValueError, match="paramstyle 'unknown'"):
        SqlPositions(Percent())

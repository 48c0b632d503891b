"""Tables and names of a real PostgreSQL, without Spark: refusals, and names that lead to one edition or another."""

from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from tests.spark.postgresql_server import PASSWORD, USER, PostgresServer

from cordwood.pipelines import jdbc
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import InvalidRows, WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.editions import Edition
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.swapping import rollback, swap
from cordwood.pipelines.formats.trial_writes import check_tables_can_be_written
from cordwood.pipelines.postgresql.place import Database, check_database, connected
from cordwood.pipelines.postgresql.relations import Columns, dropping, names_leading, prepare

COLUMNS = {"id": "text", "total": "double precision"}


def place(postgres: PostgresServer, name: str, edition: str = "v1", *, leads: bool = False, made: int = 1) -> Database:
    credentials = (("password", PASSWORD),)
    return Database(postgres.url, name, edition, "price", f"price/{edition}-{made}", leads, credentials)


def make(of: Database, columns: Columns = COLUMNS, key: Sequence[str] = ("id",)) -> None:
    with connected(of) as connection:
        prepare(of, connection, columns, jdbc(of.url, of.name, key=key))


@pytest.mark.parametrize(
    ("change", "told", "hint"),
    [
        (("/postgres", "/nowhere"), 'database "nowhere" does not exist', "create it"),
        ((f"{USER}@", "nobody@"), "password authentication failed", "PGPASSWORD"),
        (("127.0.0.1:", "127.0.0.1:1"), "cannot be reached", "is PostgreSQL running there"),
    ],
    ids=["no database", "credentials that are refused", "away"],
)
def test_a_database_that_cannot_be_used_is_refused_in_words(
    postgres: PostgresServer, change: tuple[str, str], told: str, hint: str
) -> None:
    url = f"postgresql://{USER}@127.0.0.1:1/postgres" if told == "cannot be reached" else postgres.url.replace(*change)
    with pytest.raises(WrongState, match=told) as refused:
        check_database(Database(url, "orders", "v1", "price", "price/v1-1", given=(("password", PASSWORD),)))
    assert hint in refused.value.hint
    assert PASSWORD not in f"{refused.value} {refused.value.hint}"


def test_a_table_of_somebody_else_is_left_alone(postgres: PostgresServer) -> None:
    postgres.execute("create table taken (a int)")
    with pytest.raises(WrongState, match="has a table or view taken already, which price did not make"):
        check_database(place(postgres, "taken"))
    with pytest.raises(WrongState, match="has a table or view taken already"):
        make(place(postgres, "taken", leads=True))
    assert "taken__v1" not in postgres.tables(), "nothing of a refused batch stays"


def test_the_name_leads_to_one_edition_or_to_the_other_and_keeps_its_readers(postgres: PostgresServer) -> None:
    live, fresh = place(postgres, "led", leads=True), place(postgres, "led", "v2.2")
    make(live)
    make(fresh, {"id": "text", "total": "numeric(10,2)", "more": "text"})
    postgres.execute("insert into led__v1 values ('a', 1)")
    postgres.execute("insert into led__v2_2 values ('b', 2, 'x')")
    postgres.execute("create role reader; grant select on led to reader")
    with pytest.raises(KeyboardInterrupt), names_leading([fresh]):
        raise KeyboardInterrupt  # the process is gone before the transaction of the database ends
    assert postgres.rows("select * from led") == [("a", 1.0)]
    with names_leading([fresh]):
        pass
    assert [row[0] for row in postgres.rows("select * from led")] == ["b"]
    assert postgres.rows("select has_table_privilege('reader', 'led', 'select')") == [(True,)]
    with names_leading([live]):
        pass
    assert postgres.rows("select * from led") == [("a", 1.0)]
    # The name was left behind by a crash between the swap and its database: the next batch makes up for it.
    make(place(postgres, "led", "v2.2", leads=True), {"id": "text"})
    assert [row[0] for row in postgres.rows("select * from led")] == ["b"]


def test_a_forgotten_edition_is_dropped_and_one_that_readers_get_is_not(postgres: PostgresServer) -> None:
    make(place(postgres, "kept", leads=True))
    make(place(postgres, "kept", "v2"))
    postgres.execute("create unlogged table kept__v2__s01234567 (a int)")
    postgres.execute("create table kept__v2__shared (a int); create table kept__v2__sabcdef00 (a int)")
    with dropping([place(postgres, "kept", "v2")]):
        pass
    of_others = ["kept__v2__sabcdef00", "kept__v2__shared"]
    assert [name for name in postgres.tables() if name.startswith("kept")] == ["kept__v1", *of_others]
    with pytest.raises(WrongState, match="other objects depend on it"), dropping([place(postgres, "kept")]):
        pass
    assert postgres.rows("select * from kept") == []


def test_a_table_of_an_earlier_edition_of_the_name_is_not_taken_for_the_new_one_s(postgres: PostgresServer) -> None:
    make(place(postgres, "twice"))
    with pytest.raises(WrongState, match="belongs to another edition") as refused:
        make(place(postgres, "twice", made=2))
    assert 'drop table "twice__v1"' in refused.value.hint
    with dropping([place(postgres, "twice", made=2)]):
        pass
    assert "twice__v1" in postgres.tables()


def test_columns_are_added_and_never_changed(postgres: PostgresServer) -> None:
    of = place(postgres, "grown", leads=True)
    make(of)
    make(of, {**COLUMNS, "Größe %": "bigint"})
    postgres.execute("""insert into grown__v1 values ('a', 1, 7)""")
    assert postgres.rows("select * from grown") == [("a", 1.0, 7)]
    with pytest.raises(InvalidRows, match="the column total was double precision and is now bigint"):
        make(of, {"id": "text", "total": "bigint"})


def test_a_reader_that_holds_the_name_for_long_makes_a_swap_fail_and_nothing_else(postgres: PostgresServer) -> None:
    make(place(postgres, "held", leads=True))
    make(place(postgres, "held", "v2"))
    with psycopg.connect(postgres.url, password=PASSWORD) as reader:
        reader.execute("select * from held")
        with pytest.raises(WrongState, match="lock timeout"), names_leading([place(postgres, "held", "v2")]):
            raise AssertionError("the swap goes on")
    with names_leading([place(postgres, "held", "v2")]):
        pass


FILE = """
from cordwood.pipelines import jdbc, pipeline, topic

@pipeline("swapped", version={version}, inputs=topic("orders"), outputs=jdbc("{url}", "swapped", key="id"))
def swapped(orders):
    return orders
"""


def test_swap_and_rollback_move_the_name_and_forget_drops_the_table(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    file = tmp_path / "swapped.py"
    state = Project(tmp_path / "project").state("swapped")

    def declared(version: int) -> Pipeline:
        file.write_text(FILE.format(version=version, url=postgres.url))
        return load_pipeline(file)

    def make_with_a_row(edition: Edition) -> None:
        of = state.table_directory(edition, "swapped")
        assert isinstance(of, Database)
        make(of)
        postgres.execute(f"insert into {of.relation} values ('{edition.name}', 1)")

    make_with_a_row(state.begin(declared(1), starting="earliest", now_ms=1))
    make_with_a_row(state.make_edition(declared(2), starting="earliest", now_ms=2, replayed=True))
    assert postgres.rows("select id from swapped") == [("v1",)]
    swap(state, None, force=True, skip_effects=False, timeout_s=60)
    assert postgres.rows("select id from swapped") == [("v2",)]
    rollback(state, timeout_s=60)
    assert postgres.rows("select id from swapped") == [("v1",)]
    monkeypatch.setenv("PGPASSWORD", "another")
    with pytest.raises(WrongState, match="password authentication failed"):
        swap(state, "v2", force=True, skip_effects=False, timeout_s=60)
    live = state.live()
    assert live is not None
    assert live.edition == "v1", "a database that refuses leaves the old edition live"
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    state.forget("v2")
    assert [name for name in postgres.tables() if name.startswith("swapped")] == ["swapped__v1"]


def test_a_pipeline_whose_database_is_away_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "swapped.py"
    file.write_text(FILE.format(version=1, url="postgresql://shop@127.0.0.1:1/sales"))
    with pytest.raises(WrongState, match=r"cannot be reached: .*Connection refused"):
        check_tables_can_be_written(load_pipeline(file))

"""Tables of a database in a definition: its address, and the password that is kept nowhere."""

from pathlib import Path
from textwrap import dedent

import pytest

from cordwood.pipelines import jdbc
from cordwood.pipelines.definition.errors import InvalidDefinition
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.definition.table_output import TableFormat
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.postgresql.place import Database


@pytest.mark.parametrize(
    ("url", "kept", "password"),
    [
        ("postgresql://shop@db:5432/sales", "postgresql://shop@db:5432/sales", None),
        ("postgres://shop:a%40b@db/sales?sslmode=require", "postgresql://shop@db/sales?sslmode=require", "a@b"),
        ("jdbc:postgresql://db/sales?user=shop&password=x%20y", "postgresql://db/sales?user=shop", "x y"),
        (
            "postgresql://db/sales?options=-csearch_path%3Dmart",
            "postgresql://db/sales?options=-csearch_path%3Dmart",
            None,
        ),
    ],
)
def test_an_address_is_kept_without_its_password(url: str, kept: str, password: str | None) -> None:
    table = jdbc(url, "orders", key="id", latest_by="at")
    assert (table.location, table.storage_options.get("password")) == (kept, password)
    assert (table.format, table.key, table.latest_by) == (TableFormat.POSTGRESQL, ("id",), ("at",))
    assert "password" not in repr(table)


@pytest.mark.parametrize(
    ("url", "name", "told"),
    [
        ("mysql://db/sales", "orders", "mysql://… is no address of a PostgreSQL database"),
        ("postgresql://db", "orders", "is no address of a PostgreSQL database"),
        ("postgresql://db/sales", "or.ders", "cannot be a table's name"),
        ("postgresql://db/sales", "o" * 41, "is too long for a table's name"),
        ("postgresql://shop:s3/cr3t@db/sales", "orders", "the address of the database cannot be taken apart"),
        ("postgresql://shop:s3[cr3t@db/sales", "orders", "it is no address of a PostgreSQL database"),
    ],
)
def test_what_cannot_be_a_table_of_a_database_is_refused_in_its_line(url: str, name: str, told: str) -> None:
    with pytest.raises(InvalidDefinition, match=rf"test_pipeline_databases.py:\d+: .*{told}") as refused:
        jdbc(url, name)
    assert "cr3t" not in str(refused.value)


def test_a_definition_with_a_password_in_its_text_is_refused_and_an_edition_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "orders.py"
    content = """
        import os
        from cordwood.pipelines import jdbc, pipeline, topic

        @pipeline(version=1, inputs=topic("orders"), outputs=jdbc(URL, "orders"))
        def orders(records):
            return records
    """
    file.write_text(dedent(content).replace("URL", '"postgresql://shop:s3cr3t@db/sales"'))
    state = Project(tmp_path / "project").state("orders")
    with pytest.raises(InvalidDefinition, match="the file has the value of password in it") as refused:
        state.begin(load_pipeline(file), starting="earliest", now_ms=1)
    assert "PGPASSWORD" in refused.value.hint
    monkeypatch.setenv("SHOP", "s3cr3t")
    file.write_text(dedent(content).replace("URL", "f\"postgresql://shop:{os.environ['SHOP']}@db/sales\""))
    edition = state.begin(load_pipeline(file), starting="earliest", now_ms=1)
    found = state.table_directory(edition, "orders")
    assert isinstance(found, Database)
    assert (found.relation, found.owner, found.leads, found.given) == ("orders__v1", "orders/v1-1", True, ())
    assert str(found) == "orders__v1 at postgresql://shop@db/sales"
    assert "s3cr3t" not in "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())

"""Tables in an object store, as they are declared: valid places, and no kept credentials."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from cordwood.pipelines.definition.errors import InvalidDefinition, WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.definition.storage_options import is_credential
from cordwood.pipelines.definition.table_output import table
from cordwood.pipelines.editions.editions import Edition
from cordwood.pipelines.editions.project import Project, table_path, table_uri

SECRET = "a-secret-of-the-tests"


def declare(directory: Path, options: str) -> Path:
    file = directory / "pipeline.py"
    file.write_text(
        dedent(
            f"""
            import os
            from cordwood.pipelines import *

            @pipeline("remote", version=1, inputs=topic("orders"), outputs=table(
                "orders", location="s3://bucket/lake/", storage_options={options}))
            def copied(rows):
                return rows
            """
        )
    )
    return file


def test_a_definition_with_a_secret_in_it_is_not_kept(tmp_path: Path) -> None:
    file = declare(tmp_path, f'{{"AWS_SECRET_ACCESS_KEY": "{SECRET}"}}')
    state = Project(tmp_path / "project").state("remote")
    with pytest.raises(InvalidDefinition, match="the value of AWS_SECRET_ACCESS_KEY in it") as refused:
        state.make_edition(load_pipeline(file), starting="earliest", now_ms=0, replayed=False)
    assert SECRET not in str(refused.value)
    assert not any(path.is_file() for path in state.directory.rglob("*"))


def test_an_edition_keeps_what_leads_to_a_table_and_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    file = declare(tmp_path, '{"AWS_REGION": "eu-central-1", "AWS_SECRET_ACCESS_KEY": os.environ["LAKE_SECRET"]}')
    made = load_pipeline(file)
    assert made.tables["orders"].storage_options["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert SECRET not in repr(made)
    project = Project(tmp_path / "project")
    edition = project.state("remote").begin(made, starting="earliest", now_ms=17)
    assert edition.tables["orders"].storage_options == {"AWS_REGION": "eu-central-1"}
    assert Edition.from_json(edition.to_json(), file) == edition
    assert project.state("remote").edition("v1").tables["orders"].storage_options == {"AWS_REGION": "eu-central-1"}
    assert table_uri("orders", project.directory) == "s3://bucket/lake/remote/v1-17/orders"
    with pytest.raises(WrongState, match="in an object store"):
        table_path("orders", project.directory)
    for path in project.directory.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "aws_access_key_id",
        "AWS_SESSION_TOKEN",
        "azure_storage_account_key",
        "AZURE_STORAGE_SAS_TOKEN",
        "azure_client_secret",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "google_application_credentials",
    ],
)
def test_credentials_are_known_by_their_names(name: str) -> None:
    assert is_credential(name)


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_ENDPOINT_URL", "AZURE_STORAGE_ACCOUNT_NAME", "allow_http"])
def test_other_options_are_kept(name: str) -> None:
    assert not is_credential(name)


@pytest.mark.parametrize(
    ("location", "more"),
    [
        ("/a/directory", {}),
        ("s3://", {}),
        ("s3://bucket", {"replayable": False}),
        ("s3://bucket", {"storage_options": {"allow_http": True}}),
        (None, {"storage_options": {"AWS_REGION": "eu-central-1"}}),
    ],
)
def test_places_where_no_table_can_be_are_refused(location: str | None, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition):
        table("t", location=location, **more)

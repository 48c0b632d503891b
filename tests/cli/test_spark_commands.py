"""`cordwood spark repair-checkpoint` against a real broker, with the files of a checkpoint as Spark writes them."""

import hashlib
import json
import uuid
from pathlib import Path

import pytest
from tests.cli.conftest import Cordwood
from tests.spark.checkpoint_files import CheckpointFiles

from cordwood.client.cluster import Cluster
from cordwood.client.families import FamilyPlan
from cordwood.client.settings import ClientSettings
from cordwood.model.failure import ExitCode
from cordwood.spark.checkpoints.owner import Owner, write_owner
from cordwood.spark.checkpoints.plans import Plan


@pytest.fixture
def checkpoint(tmp_path: Path) -> CheckpointFiles:
    found = CheckpointFiles(tmp_path / "checkpoint", str(uuid.uuid4()))
    write_owner(found.directory, Owner(found.query_id, found.query_id))
    for batch_id in (0, 1):
        found.plan(batch_id, 10 * (batch_id + 1))
    found.commit(0)
    return found


def decide(cordwood_cli: Cordwood, family: str, batch_id: int, text: str, *, kept: bool = True) -> None:
    plan = Plan.parse(text)
    with Cluster(ClientSettings(cordwood_cli.bootstrap)) as cluster:
        cluster.family_decide(
            family,
            batch_id,
            commit=True,
            plan=FamilyPlan(3, plan.digest, plan.packed(1 << 14) if kept else b""),
        )


@pytest.mark.parametrize("damage", ["lost", "empty", "planned anew"])
def test_the_plan_of_the_decided_batch_is_written_back(
    cordwood_cli: Cordwood, checkpoint: CheckpointFiles, damage: str
) -> None:
    text = checkpoint.path("offsets/1").read_text()
    decide(cordwood_cli, checkpoint.query_id, 1, text)
    place = str(checkpoint.directory)
    assert "nothing to repair" in cordwood_cli("spark", "repair-checkpoint", place)
    if damage == "lost":
        checkpoint.lose("offsets/1")
    elif damage == "empty":
        checkpoint.empty("offsets/1")
    else:
        checkpoint.plan(1, 25)
    before = checkpoint.names()
    looked = cordwood_cli.run("spark", "repair-checkpoint", place, "--dry-run")
    assert (looked.exit_code, checkpoint.names()) == (ExitCode.PROBLEM_FOUND, before)
    assert "offsets/1" in looked.stdout
    told = cordwood_cli.json("spark", "repair-checkpoint", place)
    assert (told["query_id"], told["last_batch_id"]) == (checkpoint.query_id, 1)
    assert [(each["file"], each["remedy"]) for each in told["changes"]] == [("offsets/1", "written back")]
    assert checkpoint.path("offsets/1").read_text() == text
    assert not checkpoint.path("offsets/.1.crc").exists()
    if damage == "planned anew":
        kept = Path(told["kept"]) / "offsets" / "1"
        assert hashlib.sha256(kept.read_bytes()).digest() != hashlib.sha256(text.encode()).digest()
    else:
        assert (told["kept"] is None) == (damage == "lost")
    assert cordwood_cli.json("spark", "repair-checkpoint", place)["changes"] == []


def test_the_query_gets_its_id_back_and_torn_files_of_undecided_batches_are_set_aside(
    cordwood_cli: Cordwood, checkpoint: CheckpointFiles
) -> None:
    decide(cordwood_cli, checkpoint.query_id, 1, checkpoint.path("offsets/1").read_text())
    checkpoint.give_id(str(uuid.uuid4()))
    checkpoint.plan(2, 30)
    checkpoint.empty("offsets/2")
    checkpoint.commit(1)
    checkpoint.empty("commits/1")
    told = cordwood_cli.json("spark", "repair-checkpoint", str(checkpoint.directory))
    assert {each["file"]: each["remedy"] for each in told["changes"]} == {
        "commits/1": "set aside",
        "offsets/2": "set aside",
        "metadata": "written back",
    }
    assert json.loads(checkpoint.path("metadata").read_text()) == {"id": checkpoint.query_id}
    assert not checkpoint.path("offsets/2").exists()
    assert not checkpoint.path("commits/1").exists()


def test_a_checkpoint_without_a_witness_is_repaired_by_the_name_of_its_family(
    cordwood_cli: Cordwood, checkpoint: CheckpointFiles
) -> None:
    family = f"nightly.{checkpoint.query_id}"
    decide(cordwood_cli, family, 1, checkpoint.path("offsets/1").read_text())
    checkpoint.path("cordwood-sink.json").unlink()
    checkpoint.lose("metadata")
    place = str(checkpoint.directory)
    code, error = cordwood_cli.error("spark", "repair-checkpoint", place)
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "QUERY_UNKNOWN")
    code, error = cordwood_cli.error("spark", "repair-checkpoint", place, "--family", "nobody")
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "FAMILY_NOT_FOUND")
    told = cordwood_cli.json("spark", "repair-checkpoint", place, "--family", family)
    assert [each["file"] for each in told["changes"]] == ["metadata"]
    assert json.loads(checkpoint.path("metadata").read_text()) == {"id": checkpoint.query_id}


def test_what_cannot_be_repaired_is_said_and_left_alone(cordwood_cli: Cordwood, checkpoint: CheckpointFiles) -> None:
    text = checkpoint.path("offsets/1").read_text()
    place = str(checkpoint.directory)
    decide(cordwood_cli, checkpoint.query_id, 1, text, kept=False)
    checkpoint.plan(1, 25)
    before = checkpoint.names()
    code, error = cordwood_cli.error("spark", "repair-checkpoint", place)
    assert (code, error["code"]) == (ExitCode.FAILED, "NOT_REPAIRABLE")
    assert "16 KiB" in error["message"]
    decide(cordwood_cli, checkpoint.query_id, 5, text)
    code, error = cordwood_cli.error("spark", "repair-checkpoint", place)
    assert "more than one batch old" in error["message"]
    checkpoint.commit(6)
    code, error = cordwood_cli.error("spark", "repair-checkpoint", place)
    assert "batch 6 is done" in error["message"]
    assert checkpoint.names() == before | {"commits/6"}
    code, error = cordwood_cli.error("spark", "repair-checkpoint", "/nowhere/at/all")
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "CHECKPOINT_NOT_FOUND")

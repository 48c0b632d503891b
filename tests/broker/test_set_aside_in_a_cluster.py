"""A node of a cluster sets a log aside: what it says can be done with that log works."""

import json
import logging
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.cli.app import app
from cordwood.embedded import Broker, Cluster


@pytest.mark.stories
def test_a_log_that_a_node_set_aside_is_read_by_a_broker_without_a_cluster(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node, rescue = tmp_path / "cluster" / "node-1", tmp_path / "rescue"
    with Broker(data_dir=tmp_path / "former") as former:
        former.log.append("orders", "ada", "placed")
    with Cluster(nodes=1, data_dir=tmp_path / "cluster"):
        pass
    shutil.copytree(tmp_path / "former" / "orders-0", node / "orders-0")
    with caplog.at_level(logging.ERROR), Cluster(nodes=1, data_dir=tmp_path / "cluster"):
        pass
    (said,) = [line for line in caplog.messages if "is set aside" in line]
    assert "`cordwood recover put-back` refuses the directory of a node of a cluster" in said
    (aside,) = node.glob("*-stray")

    refused = CliRunner().invoke(app, ["recover", "put-back", str(node), "--all", "--json"])
    error = json.loads(refused.stderr)["error"]
    assert error["code"] == "PART_OF_CLUSTER"
    assert "a broker without a cluster" in error["hint"]

    with Broker(data_dir=rescue):
        pass
    shutil.copytree(aside, rescue / aside.name)
    restored = CliRunner().invoke(app, ["recover", "put-back", str(rescue), "--all"])
    assert restored.exit_code == 0, restored.output
    with Broker(data_dir=rescue) as broker:
        assert [record.value for record in broker.log.read("orders", partition=0)] == [b"placed"]

"""A chain of three is replayed together, and its only broker is lost on the way: between two members, and in the run of
one. The command goes on by itself when the broker is back, and each record is in each fresh output once."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.spark.serving_stage import written
from tests.spark.test_pipeline_chain_killed import Chain

from cordwood.pipelines.editions.project import table_path


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    made = Chain(tmp_path)
    try:
        yield made
    finally:
        made.broker.end()


def replay_losing_the_broker(chain: Chain, losses: list[tuple[str, str]]) -> list[str]:
    """Kills the broker at each of these events (kind, pipeline), and starts it again when the command says that it
    failed. Returns the messages of the failures."""
    left, messages = list(losses), []
    with subprocess.Popen(
        chain.command("replay", chain.file, "--downstream", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=chain.directory,
        env=chain.environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "failed":
                messages.append(event["message"])
                assert event["again_in_s"] > 0
                if not chain.broker.alive:
                    chain.broker.start()
            elif left and (event["event"], event.get("pipeline")) == left[0] and chain.broker.alive:
                left.pop(0)
                chain.broker.kill()
        said = process.stderr.read()
    assert process.returncode == 0, said
    assert left == [], "the broker was lost each time"
    return messages


@pytest.mark.timeout(1800)
def test_a_replay_of_all_outlives_the_loss_of_its_broker(chain: Chain) -> None:
    chain.put(200)
    chain.run("serve", str(chain.files), "--once")
    chain.version(2)
    messages = replay_losing_the_broker(chain, [("caught-up", "first"), ("started", "third")])
    assert len(messages) >= 2, messages
    for topic in ("one.v2", "two.v1.2"):
        assert written(topic, chain.broker.bootstrap) == list(range(200))
    chain.run("swap", "first")
    chain.put()
    chain.run("serve", str(chain.files), "--once")
    rows = DeltaTable(table_path("end", chain.state)).to_pyarrow_table()
    assert sorted(rows.column("n").to_pylist()) == list(range(220))
    assert set(rows.column("v").to_pylist()) == {2}

"""What the pipeline commands say and do about editions that become live together."""

from pathlib import Path

import pytest
from tests.cli.conftest import Cordwood
from tests.cli.test_pipeline_chains import WRITER, Chain
from tests.conftest import MakeTopic, RunningBroker

from cordwood.pipelines.editions.downstream import Planned, begun_set, with_downstream

BOTH = "enrich v2.2, report v1.2"


@pytest.fixture
def chain(tmp_path: Path, broker: RunningBroker, make_topic: MakeTopic, cordwood_cli: Cordwood) -> Chain:
    """`enrich` and `report`, which reads it, with a set beside their live editions."""
    chain = Chain(tmp_path, broker.bootstrap, make_topic)
    chain.read(f'output("enrich", "{chain.enriched}")', offset=10)
    made = chain.load("enrich", WRITER.format(version=2, orders=chain.orders, enriched=chain.enriched))
    planned = with_downstream(chain.project, Planned(made, chain.directory / "enrich.py"))
    assert str(begun_set(chain.project, "enrich", planned, fresh=False, now_ms=5)) == BOTH
    chain.read_up_to(chain.writer, "v2.2", {chain.orders: {0: 10}})
    return chain


def catch_up(chain: Chain) -> None:
    for state, edition in ((chain.writer, "v2.2"), (chain.reader, "v1.2")):
        state.note_caught_up(state.edition(edition), 6)


def test_a_set_is_shown_and_swapped_and_rolled_back_as_one(chain: Chain, cordwood_cli: Cordwood) -> None:
    at = ("-d", str(chain.project.directory))
    words = f"v1.2 is one of a set, which a swap of any of them makes live: {BOTH}"
    assert words in cordwood_cli("pipeline", "status", "report", *at)
    assert "v2.2 of a set beside it" in cordwood_cli("pipeline", "graph", *at)
    code, error = cordwood_cli.error("pipeline", "swap", "report", *at)
    assert (code, error["message"]) == (
        1,
        f"edition v2.2 of enrich has not caught up yet, and becomes live with all of its set ({BOTH})",
    )
    catch_up(chain)
    said = cordwood_cli("pipeline", "swap", "report", "--dry-run", *at)
    assert f"A set of 2 would become live at one moment: {BOTH}" in said
    assert chain.writer.live_edition().name == "v1"
    done = cordwood_cli.json("pipeline", "swap", "report", *at)
    assert (done["pipeline"], done["live"]) == ("report", "v1.2")
    assert [(each["pipeline"], each["before"], each["live"]) for each in done["set"]] == [
        ("enrich", "v1", "v2.2"),
        ("report", "v1", "v1.2"),
    ]
    assert f"v2.2 became live with a set: {BOTH}" in cordwood_cli("pipeline", "status", "enrich", *at)
    said = cordwood_cli("pipeline", "rollback", "enrich", *at)
    assert "A set of 2 became live at one moment: enrich v1, report v1" in said
    assert chain.reader.live_edition().name == "v1"


def test_a_set_is_forgotten_as_one(chain: Chain, cordwood_cli: Cordwood) -> None:
    at = ("-d", str(chain.project.directory))
    said = cordwood_cli("pipeline", "forget", "report", "v1.2", "--dry-run", *at)
    assert f"the set {BOTH} would be gone" in said
    said = cordwood_cli("pipeline", "forget", "report", "v1.2", "--yes", *at)
    assert f"the set {BOTH} is gone" in said
    assert f"`cordwood topic delete {chain.enriched}.v2.2` removes it" in said
    assert (list(chain.writer.editions()), list(chain.reader.editions())) == (["v1", "v2"], ["v1"])


def test_downstream_ends_when_all_have_caught_up(chain: Chain, cordwood_cli: Cordwood) -> None:
    file = str(chain.directory / "enrich.py")
    code, error = cordwood_cli.error("pipeline", "replay", file, "--downstream", "--follow")
    assert (code, error["code"]) == (2, "USAGE")

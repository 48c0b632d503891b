"""Three pages of docs/internals show the code's tables of states, and no code sets a state past its table."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.groups.classic.group import CLASSIC_GROUP_MOVES
from cordwood.groups.consumer.group import CONSUMER_GROUP_MOVES
from cordwood.groups.consumer.member import MEMBER_MOVES
from cordwood.model.state_tables import Moves
from cordwood.node.coordinators.coordinator_log import SHARD_MOVES
from cordwood.node.partitions.role import ROLE_MOVES
from cordwood.node.replication.asking_leaders import FETCHER_MOVES
from cordwood.node.replication.in_sync_changes import CALL_MOVES, VISIT_MOVES
from cordwood.pipelines.serving.served import STAGE_MOVES
from cordwood.pipelines.serving.serving import WORKER_MOVES
from cordwood.replication.in_sync import IN_SYNC_MOVES
from cordwood.security.authentication import AUTHENTICATION_MOVES
from cordwood.transactions.transaction import SLOT_MOVES, TRANSACTION_MOVES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "coordinators.md"
PAGE_OF_PIPELINES = ROOT / "docs" / "internals" / "serving-pipelines.md"
PAGE_OF_SECURITY = ROOT / "docs" / "internals" / "security.md"
MACHINES = ("groups", "transactions")


def table_of(moves: Moves[Any]) -> str:
    """The table as the page shows it."""
    lines = [f"| {moves.kind} | allowed previous states |", "| --- | --- |"]
    for state, previous in moves.previous.items():
        names = ", ".join(each.name for each in type(state) if each in previous)
        lines.append(f"| {state.name} | {names or 'none'} |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "moves",
    [
        CLASSIC_GROUP_MOVES,
        CONSUMER_GROUP_MOVES,
        MEMBER_MOVES,
        TRANSACTION_MOVES,
        SLOT_MOVES,
        IN_SYNC_MOVES,
        ROLE_MOVES,
        SHARD_MOVES,
        FETCHER_MOVES,
        CALL_MOVES,
        VISIT_MOVES,
    ],
    ids=lambda moves: moves.kind,
)
def test_the_page_shows_the_table(moves: Moves[Any]) -> None:
    assert table_of(moves) in PAGE.read_text(), f"{PAGE} has to show:\n{table_of(moves)}"


@pytest.mark.parametrize("moves", [STAGE_MOVES, WORKER_MOVES], ids=lambda moves: moves.kind)
def test_the_page_about_served_pipelines_shows_the_table(moves: Moves[Any]) -> None:
    text = PAGE_OF_PIPELINES.read_text()
    assert table_of(moves) in text, f"{PAGE_OF_PIPELINES} has to show:\n{table_of(moves)}"


def test_the_page_about_security_shows_the_table() -> None:
    text = PAGE_OF_SECURITY.read_text()
    assert table_of(AUTHENTICATION_MOVES) in text, f"{PAGE_OF_SECURITY} has to show:\n{table_of(AUTHENTICATION_MOVES)}"


def test_no_code_sets_the_stage_of_an_authentication_past_its_table() -> None:
    machine = ROOT / "src" / "cordwood" / "security" / "authentication.py"
    past = {
        ast.unparse(value)
        for value in values_set_in(machine, "stage")
        if not (isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "moved")
    }
    assert past == {"Stage.BEGINNING"}, "the first one"


def test_no_code_sets_the_stage_of_a_served_pipeline_past_its_table() -> None:
    serving = ROOT / "src" / "cordwood" / "pipelines" / "serving"
    past = {
        ast.unparse(value)
        for name in ("stage", "worker")
        for path in sorted(serving.glob("serv*.py"))
        for value in values_set_in(path, name)
        if not (isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "moved")
    }
    assert past == {"Stage.WAITING", "WorkerStage.AWAITED"}, "the first ones"


def values_set_in(path: Path, name: str) -> Iterator[ast.expr]:
    """The values that a module gives to an attribute: by assignment, or by replacing a field."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Attribute) and target.attr == name for target in node.targets
        ):
            yield node.value
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "replace",
            "_replace",
        ):
            yield from (keyword.value for keyword in node.keywords if keyword.arg == name)


def test_no_machine_sets_a_state_past_its_table() -> None:
    past = {
        f"{path.name}: {ast.unparse(value)}"
        for folder in MACHINES
        for path in sorted((ROOT / "src" / "cordwood" / folder).rglob("*.py"))
        for value in values_set_in(path, "state")
        if not (isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "moved_to")
    }
    # The state of a classic group that is restored from its record.
    restored = {
        "group.py: State.STABLE if self.members else State.EMPTY",
        "group.py: State.PREPARING_REBALANCE",
    }
    assert past == restored


def test_no_code_of_a_node_sets_a_state_past_its_table() -> None:
    node = ROOT / "src" / "cordwood" / "node"
    machines = {
        "role": [node / "partitions", node / "replication"],
        "state": [node / "coordinators" / "coordinator_log.py"],
        "_asking": [node / "replication" / "fetcher.py"],
        "_call": [node / "replication" / "in_sync_changes.py"],
        "_visit": [node / "replication" / "in_sync_changes.py"],
    }
    past = {
        ast.unparse(value)
        for name, places in machines.items()
        for place in places
        for path in ([place] if place.is_file() else sorted(place.rglob("*.py")))
        for value in values_set_in(path, name)
        if not (isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "moved")
    }
    # The first states, and the role that `Partition._take` has checked.
    assert past == {"role", "ShardState.LOADING", "Asking.IDLE", "Call.NONE", "Visit.NONE"}

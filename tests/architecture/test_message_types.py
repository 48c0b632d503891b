"""The types of messages are those of the message files, and only the type checker pays for them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from cordwood.administration import brokers as raw_request
from cordwood.client.settings import Address
from cordwood.node.loop.peers import PeerAnswer, PeerOutcome, PeerRequest
from cordwood.node.requests.request import Made, Request, serves
from cordwood.wire.apis import ApiKey
from cordwood.wire.declarations import FOLDER, TYPES, generated_files

if TYPE_CHECKING:
    from cordwood.client.link import Link
    from cordwood.model.moment import Moment
    from cordwood.node.loop.peers import Peers
    from cordwood.wire.message_types.delete_groups import DeleteGroups
    from cordwood.wire.message_types.heartbeat import Heartbeat

LISTING = (
    "import sys, cordwood.broker.server, cordwood.node.apis, cordwood.client.brokers, cordwood.administration.brokers;"
    f"print([name for name in sys.modules if name.startswith('cordwood.wire.{TYPES}')])"
)


def test_the_generated_files_are_up_to_date() -> None:
    files = generated_files()
    there = {path.relative_to(FOLDER) for path in (*(FOLDER / TYPES).glob("*.py"), FOLDER / "api_keys.pyi")}
    assert there == set(files), "run: make types"
    stale = [str(path) for path, text in files.items() if (FOLDER / path).read_text() != text]
    assert not stale, "run: make types"


def test_brokers_and_clients_run_without_the_types() -> None:
    found = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def mistakes_that_mypy_finds(
    heartbeat: Request[Heartbeat], deletion: Request[DeleteGroups], unknown: Request, link: Link, peers: Peers
) -> list[object]:
    """Is never called. Where types get lost, mypy reports the comment on that line as unused."""

    def handle(rooms: object, request: Request[DeleteGroups]) -> None: ...

    def answered(outcome: PeerOutcome[DeleteGroups.Response], now: Moment) -> None:
        assert isinstance(outcome, PeerAnswer)
        print(outcome.body.result)  # type: ignore[attr-defined]

    peers.send(PeerRequest(1, ApiKey.HEARTBEAT, (0, 4), {}, 1), answered)  # type: ignore[arg-type]
    heartbeat.answer(eror_code=1)  # type: ignore[call-arg]
    deletion.answer(results=[{"group": "a"}])  # type: ignore[typeddict-unknown-key]
    deletion.answer(results=Made(["a"], lambda name: {"group_id": 1}))  # type: ignore[typeddict-item]
    unknown.answer(error_code=1)  # type: ignore[operator]
    serves(ApiKey.HEARTBEAT, 0, 4, handle)  # type: ignore[arg-type]
    return [
        heartbeat.decode().group,  # type: ignore[attr-defined]
        len(heartbeat.decode().group_instance_id),  # type: ignore[arg-type]
        heartbeat.decode().group_id + 1,  # type: ignore[operator]
        unknown.decode().group_id,  # type: ignore[attr-defined]
        link.ask(ApiKey.DELETE_GROUPS, {}).result,  # type: ignore[attr-defined]
        raw_request.ask(Address("localhost", 9092), ApiKey.DELETE_GROUPS, 0, {}, 1.0).result,  # type: ignore[attr-defined]
    ]

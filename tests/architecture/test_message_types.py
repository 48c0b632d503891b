"""The types of messages are those of the message files, and only the type checker pays for them."""

import subprocess
import sys

from cordwood.wire.declarations import FOLDER, TYPES, generated_files

LISTING = (
    "import sys, cordwood.broker.server, cordwood.node.apis, cordwood.client.brokers, cordwood.cli.raw_request;"
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

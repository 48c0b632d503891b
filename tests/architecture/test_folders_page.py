"""docs/architecture.md draws the folders that there are, in the order that the import rules give them."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def rows_of_the_page() -> list[set[str]]:
    """The folders of each row of the table, from the top layer down."""
    section = (ROOT / "docs" / "architecture.md").read_text().partition("| folder | what it is |")[2]
    table = section.partition("\n\n")[0]
    return [set(re.findall(r"`(\w+)/`", row.split("|")[1])) for row in table.splitlines() if "/`" in row]


def layers_of_the_import_rules() -> list[set[str]]:
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (rule["layers"] for rule in rules if rule["type"] == "layers")
    return [set(layer.split(" | ")) for layer in layers]


def test_the_table_has_every_folder_and_no_other() -> None:
    folders = {path.parent.name for path in (ROOT / "src" / "cordwood").glob("*/__init__.py")}
    rows = rows_of_the_page()
    assert sum(map(len, rows)) == len(set().union(*rows))
    assert set().union(*rows) == folders


def test_the_table_and_the_import_rules_have_the_same_layers() -> None:
    assert rows_of_the_page() == layers_of_the_import_rules()

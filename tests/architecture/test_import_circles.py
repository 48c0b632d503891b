"""The files of a folder import each other in one direction: none imports, by whatever way, itself.

A circle of files is one file in pieces: none can be understood, tested or replaced without all others.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

FOLDERS = {"log": True, "node": False}
"""The folders without circles. True: imports for types alone (under TYPE_CHECKING) count, too."""


def imported_names(tree: ast.AST, *, types_too: bool) -> Iterator[str]:
    """All names that the code may mean by its imports, also those inside of functions: `a.b` and `a.b.c` for
    `from a.b import c`."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")) if not types_too:
                for other in node.orelse:
                    yield from imported_names(other, types_too=types_too)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.ImportFrom():
                raise AssertionError(f"line {node.lineno} has a relative import, which this test does not follow")
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case _:
                yield from imported_names(node, types_too=types_too)


def imports_within(folder: Path, *, types_too: bool) -> dict[str, list[str]]:
    """The modules of the folder that each of its modules imports, by name."""
    root = folder.parent
    while (root / "__init__.py").exists():
        root = root.parent
    modules = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(folder.rglob("*.py"))
    }
    return {
        name: sorted(
            modules.keys() & set(imported_names(ast.parse(path.read_text()), types_too=types_too)) - {name},
        )
        for name, path in modules.items()
    }


def find_circle(imports: Mapping[str, list[str]]) -> list[str]:
    """The modules of one circle, the first one again at the end; empty if there is no circle."""
    done: set[str] = set()

    def visit(path: list[str]) -> list[str]:
        for following in imports[path[-1]]:
            if following in path:
                return [*path[path.index(following) :], following]
            if following not in done and (circle := visit([*path, following])):
                return circle
        done.add(path[-1])
        return []

    for module in imports:
        if module not in done and (circle := visit([module])):
            return circle
    return []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_of_a_folder_imports_itself_by_way_of_others(folder: str) -> None:
    circle = find_circle(imports_within(SOURCE / "cordwood" / folder, types_too=FOLDERS[folder]))
    assert not circle, " -> ".join(circle)


CIRCLE = {
    "a": "from made.b import thing",
    "b": "def later():\n    import made.c",
    "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from made import a\n",
}


@pytest.mark.parametrize(("types_too", "expected"), [(True, ["made.a", "made.b", "made.c", "made.a"]), (False, [])])
def test_a_circle_is_found_and_its_path_is_told(tmp_path: Path, types_too: bool, expected: list[str]) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    for name, text in {**CIRCLE, "__init__": ""}.items():
        (folder / f"{name}.py").write_text(text)
    assert find_circle(imports_within(folder, types_too=types_too)) == expected

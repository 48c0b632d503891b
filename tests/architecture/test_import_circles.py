"""Files import each other in one direction, and so do folders: none imports, by whatever way, itself.

A circle of files is one file in pieces: none can be understood, tested or replaced without all others. Imports for
types alone and imports inside of functions count, too.
"""

import ast
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    *sorted(path.parent for path in (ROOT / "src" / "cordwood").glob("*/__init__.py")),
    ROOT / "simulation",
]


def imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The imports of the code, also those inside of functions: (`a.b`, `a.b.c`) for `from a.b import c`, of which the
    second is meant if it is a module."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), level=0):
                yield from ((module, f"{module}.{alias.name}") for alias in node.names)
            case ast.ImportFrom():
                raise AssertionError(f"line {node.lineno} has a relative import, which this test does not follow")
            case ast.Import():
                yield from ((alias.name, alias.name) for alias in node.names)


def imports_within(folder: Path) -> dict[str, list[str]]:
    """The modules of the folder that each of its modules imports, by name."""
    root = folder.parent
    while (root / "__init__.py").exists():
        root = root.parent
    modules = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(folder.rglob("*.py"))
    }

    def imported(path: Path) -> set[str]:
        names = imported_names(ast.parse(path.read_text()))
        return {inner if inner in modules else outer for outer, inner in names} & modules.keys()

    return {name: sorted(imported(path) - {name}) for name, path in modules.items()}


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


def between_folders(imports: Mapping[str, list[str]], packages: Set[str]) -> dict[str, list[str]]:
    """The imports of modules as imports of the folders that they are in. `packages`: the names of folders."""

    def folder(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    found: dict[str, set[str]] = {}
    for module, imported in imports.items():
        found.setdefault(folder(module), set()).update(map(folder, imported))
    return {name: sorted(others - {name}) for name, others in found.items()}


def packages_within(folder: Path) -> set[str]:
    root = folder.parent
    while (root / "__init__.py").exists():
        root = root.parent
    return {".".join(path.parent.relative_to(root).parts) for path in folder.rglob("__init__.py")}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: each.name)
def test_no_file_and_no_folder_imports_itself_by_way_of_others(package: Path) -> None:
    imports = imports_within(package)
    for circle in find_circle(imports), find_circle(between_folders(imports, packages_within(package))):
        assert not circle, " -> ".join(circle)


CIRCLE = {
    "a": "from made.b import thing",
    "b": "def later():\n    import made.c",
    "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from made import a\n",
}


def test_a_circle_is_found_and_its_path_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    for name, text in {**CIRCLE, "__init__": ""}.items():
        (folder / f"{name}.py").write_text(text)
    assert find_circle(imports_within(folder)) == ["made.a", "made.b", "made.c", "made.a"]


def test_a_circle_of_folders_is_found() -> None:
    imports = {"made": [], "made.a": ["made.sub.b"], "made.c": [], "made.sub": [], "made.sub.b": ["made.c"]}
    assert not find_circle(imports)
    folders = between_folders(imports, {"made", "made.sub"})
    assert find_circle(folders) == ["made", "made.sub", "made"]

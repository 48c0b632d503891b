"""A node is put together of rooms: no room takes the node that it is part of, and no file is long."""

import ast
from pathlib import Path

NODE = Path(__file__).parents[2] / "src" / "cordwood" / "node"
MOST_LINES = 500


def test_no_constructor_takes_the_node() -> None:
    for path in NODE.rglob("*.py"):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                arguments = [*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs]
                types = [ast.unparse(argument.annotation).strip("'") for argument in arguments if argument.annotation]
                assert "Node" not in types, f"{path}:{each.lineno}"


def test_no_constructor_ties_a_callback_to_another_object() -> None:
    """A room gets what it calls when it is made: a callback that is tied later is a circle at run time."""
    tied = {
        f"{path.name}: {ast.unparse(target)}"
        for path in NODE.rglob("*.py")
        for constructor in ast.walk(ast.parse(path.read_text()))
        if isinstance(constructor, ast.FunctionDef) and constructor.name == "__init__"
        for each in ast.walk(constructor)
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self"
    }
    assert not tied


def test_no_file_is_long() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in NODE.rglob("*.py")}
    assert not {name: length for name, length in lengths.items() if length > MOST_LINES}

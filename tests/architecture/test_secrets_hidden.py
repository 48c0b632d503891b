"""Whatever holds a secret hides it from `repr`: tracebacks, logs and assertions show the fields of values."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "cordwood"

_SECRET = re.compile(
    r"(^|_)(password|passphrase|secret|jaas|jaas_config|credential|private_key|key_pem|keystore_key|stored_key|server_key"
    r"|salted_password|bearer|access_token)$"
)
_NOT_SECRET = {
    "password_file",
}
_BY_MEANING = {("BrokerRow", "key"), ("Sender", "key")}
"""Secrets whose name does not say so: who has the key of a registration passes for the broker."""


def test_values_with_secrets_hide_them() -> None:
    shown = [f"{path.relative_to(SOURCE)}: {name}.{field}" for path, name, field in _shown_secrets()]
    assert not shown, f"field(repr=False) in a dataclass, or a __repr__ without them in a NamedTuple: {shown}"


def test_the_secrets_that_are_known_are_found() -> None:
    found = {(name, field) for _, classes in _classes() for name, field, _ in classes}
    known = {("ListenerTls", "key_password"), ("PasswordClaim", "password"), ("ScramKeys", "stored_key"), *_BY_MEANING}
    assert known <= found


def _shown_secrets() -> Iterator[tuple[Path, str, str]]:
    for path, classes in _classes():
        for name, field, hidden in classes:
            if not hidden:
                yield path, name, field


def _classes() -> Iterator[tuple[Path, list[tuple[str, str, bool]]]]:
    """The secret fields of dataclasses and named tuples, with whether `repr` hides them."""
    for path in sorted(SOURCE.rglob("*.py")):
        found = []
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.ClassDef) and _is_value(each):
                own = any(isinstance(part, ast.FunctionDef) and part.name == "__repr__" for part in each.body)
                own = own or any("repr=False" in ast.unparse(decorator) for decorator in each.decorator_list)
                for part in each.body:
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        field = part.target.id
                        if _is_secret(each.name, field):
                            value = "" if part.value is None else ast.unparse(part.value)
                            found.append((each.name, field, own or "repr=False" in value or "password(" in value))
        yield path, found


def _is_secret(name: str, field: str) -> bool:
    if (name, field) in _BY_MEANING:
        return True
    return field not in _NOT_SECRET and _SECRET.search(field) is not None


def _is_value(found: ast.ClassDef) -> bool:
    if any("dataclass" in ast.unparse(decorator) for decorator in found.decorator_list):
        return True
    return any("NamedTuple" in ast.unparse(base) for base in found.bases)

"""Imports of a module without the packages above it, whose own code runs when a name of theirs is needed.

PySpark's planners need a fifth of what `import pyspark` brings: `pyspark/__init__.py` imports sessions, frames, SQL
functions and the machinery of user-defined functions, and `pyspark.sql.worker.plan_data_source_read` brings Arrow and
NumPy. A planner is a process of its own, and Spark starts several for each query.

A deferred package answers the import of its submodules at once. Any other name runs the package's code first, so a data
source of somebody else finds all of PySpark. One thread only: the process that defers must be one that imports in its
main thread.
"""

import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final

PACKAGES: Final = (
    "pyspark",
    "pyspark.sql",
    "pyspark.sql.streaming",
    "pyspark.sql.worker.plan_data_source_read",
)
"""Parents before children. The last is a module, of which the planner of a stream takes one function."""

HOMES: Final[Mapping[str, str]] = {"pyspark.sql.Row": "pyspark.sql.types"}
"""Names of packages that PySpark's planners import, and the light modules that define them."""

CALLED_LATER: Final = frozenset({"pyspark.sql.worker.plan_data_source_read.records_to_arrow_batches"})
"""Functions that a planner imports and seldom calls."""

_ASKED_OF_ANY_MODULE: Final = frozenset({"__version__", "__all__"})
"""The names with two underscores that a package's own code defines; the import system asks for others."""


def import_light(name: str) -> ModuleType:
    """Imports a module of PySpark with its packages deferred, or as a whole if this PySpark cannot be imported so."""
    defer(tuple(package for package in PACKAGES if package != name))
    try:
        return import_module(name)
    except ImportError:
        roots = {package.partition(".")[0] for package in PACKAGES}
        for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] in roots]:
            del sys.modules[loaded]
        return import_module(name)


def defer(names: tuple[str, ...]) -> None:
    """Puts modules that are not imported yet into `sys.modules` without running their code."""
    for name in names:
        if name in sys.modules:
            continue
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        if spec is None or spec.loader is None:
            continue
        module = importlib.util.module_from_spec(spec)
        setattr(module, "__class__", _Deferred)  # noqa: B010 the type checker takes no assignment
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


class _Deferred(ModuleType):
    """A module whose code has not run."""

    def __getattr__(self, name: str) -> Any:
        """Called for names that the module does not have yet."""
        if name.startswith("__") and name not in _ASKED_OF_ANY_MODULE:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        full_name = f"{self.__name__}.{name}"
        if full_name in HOMES:
            return getattr(import_module(HOMES[full_name]), name)
        if full_name in CALLED_LATER:
            return _called_later(self, name)
        if hasattr(self, "__path__") and importlib.util.find_spec(full_name) is not None:
            return import_module(full_name)
        _run(self)
        return getattr(self, name)


def _called_later(module: ModuleType, name: str) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        _run(module)
        return getattr(module, name)(*given, **named)

    return call


def _run(module: ModuleType) -> None:
    """Runs the code of the packages above a deferred module, outermost first as in any import, and its own."""
    parent = module.__name__.rpartition(".")[0]
    if parent and isinstance(sys.modules[parent], _Deferred):
        _run(sys.modules[parent])
    if not isinstance(module, _Deferred):
        return  # a package above has run it
    spec = module.__spec__
    assert spec is not None
    assert spec.loader is not None
    # First, so that names which the code itself asks for while it runs are looked up as usual.
    setattr(module, "__class__", ModuleType)  # noqa: B010 the type checker takes no assignment
    spec.loader.exec_module(module)

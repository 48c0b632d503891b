"""Loads definitions from a pipeline's file: runs the file, finds its pipelines, and reports errors with their lines.

The file is run under a name of its own, so that `if __name__ == "__main__":` stays for whoever runs it as a program.
The file is in `sys.modules` only while it runs: so Spark sends its functions to the executors by value, not by the name
of a module that they could not import.
"""

import sys
import traceback
from collections.abc import Collection
from pathlib import Path
from types import ModuleType

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import InvalidDefinition, NotFound, Site

RUN_NAME = "__cordwood_pipeline__"


def load_pipelines(path: Path, *, beside: Path | None = None) -> dict[str, Pipeline]:
    """The pipelines that a file declares, by name; one at least. The file imports its neighbours from `beside`, else
    from its own directory."""
    found = declared_in(path, beside=beside)
    if not found:
        raise InvalidDefinition(
            "no pipeline is declared here", Site(str(path), 1), "decorate a function with @pipeline(…)"
        )
    return found


def declared_in(path: Path, *, beside: Path | None = None) -> dict[str, Pipeline]:
    """The pipelines that a file declares, by name; none in a module that pipelines import."""
    found: dict[str, Pipeline] = {}
    file = str(path.resolve())
    for value in _run(path, beside or path.resolve().parent).values():
        if isinstance(value, Pipeline) and value.site.file == file and found.get(value.name) is not value:
            if value.name in found:
                raise InvalidDefinition(f"a second pipeline with the name {value.name}", value.site)
            found[value.name] = value
    return found


def load_pipeline(path: Path, name: str | None = None, *, beside: Path | None = None) -> Pipeline:
    """The pipeline of that name, or the only one of the file."""
    found = load_pipelines(path, beside=beside)
    if name is None:
        if len(found) > 1:
            hint = f"{path}:{min(found)} names one of them"
            raise NotFound(f"{path} declares {len(found)} pipelines: {', '.join(sorted(found))}", hint)
        return next(iter(found.values()))
    declared = same_name(name, found)
    if declared is None:
        raise NotFound(f"{path} declares no pipeline {name}", f"it declares {', '.join(sorted(found))}")
    return found[declared]


def same_name(name: str, known: Collection[str]) -> str | None:
    """The known name that is meant: a function's underscores are dashes in its pipeline's name, and people write both.
    None if no name fits, or two do."""
    if name in known:
        return name
    alike = [each for each in known if each.replace("_", "-") == name.replace("_", "-")]
    return alike[0] if len(alike) == 1 else None


def _run(path: Path, beside: Path) -> dict[str, object]:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    file = str(path.resolve())
    module = ModuleType(RUN_NAME)
    module.__file__ = file
    if str(beside) not in sys.path:
        sys.path.insert(0, str(beside))
    before = sys.modules.get(RUN_NAME)
    sys.modules[RUN_NAME] = module
    try:
        exec(compile(source, file, "exec"), module.__dict__)
    except InvalidDefinition:
        raise
    except SystemExit as error:
        raise InvalidDefinition("the file ends the program: sys.exit()", _line_in(file, error)) from error
    except SyntaxError as error:
        raise InvalidDefinition(f"{error.msg}", Site(error.filename or file, error.lineno or 1)) from error
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise InvalidDefinition(text, _line_in(file, error), _hint_of(error)) from error
    finally:
        del sys.modules[RUN_NAME]
        if before is not None:
            sys.modules[RUN_NAME] = before
    return module.__dict__


def _hint_of(error: Exception) -> str:
    """The parameter that does what an unknown one, which people look for, is thought to do."""
    if "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error):
        return (
            "a file is loaded before Spark starts, and Spark alone can read a type's name: say udf(StringType()), not "
            'udf("string"), or make it within the pipeline\'s function'
        )
    if isinstance(error, TypeError) and "'when_matched'" in str(error):
        return 'latest_by="changed_at" keeps the newest row of each key, also when an older one comes late'
    return ""


def _line_in(file: str, error: BaseException) -> Site:
    lines = [frame.lineno or 1 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return Site(file, lines[-1] if lines else 1)

"""Deleting several things by name: each is deleted, or said not to be, whatever happens to the others."""

from collections.abc import Callable, Iterable

from cordwood.cli.failure import ExitCode, Failure
from cordwood.cli.output import print_json, say


def delete_each(kind: str, names: Iterable[str], delete_one: Callable[[str], object], *, as_json: bool) -> None:
    """Says what was deleted. Raises one failure that names all that were not.

    One to a request: asked again for all together, one that is gone by now would count as a failure.
    """
    deleted: list[str] = []
    failures: dict[str, Failure] = {}
    for name in names:
        try:
            delete_one(name)
        except Failure as failure:
            failures[name] = failure
        else:
            deleted.append(name)
            if not as_json:
                say(f"{name}: deleted")
    if as_json:
        failed = [{kind: name, "code": each.code, "message": each.message} for name, each in failures.items()]
        print_json({"deleted": deleted, "failed": failed})
    if failures:
        raise _summary(failures)


def _summary(failures: dict[str, Failure]) -> Failure:
    """What sets the code and the hint is the first."""
    first = next(iter(failures.values()))
    exit_codes = {each.exit_code for each in failures.values()}
    return Failure(
        first.code,
        "; ".join(f"{name}: not deleted: {each.message}" for name, each in failures.items()),
        first.hint,
        first.exit_code if len(exit_codes) == 1 else ExitCode.FAILED,
    )

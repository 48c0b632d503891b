"""Deleting several topics or groups by name: one that cannot be deleted does not hinder the others."""

from collections.abc import Callable, Iterable

from cordwood.cli.terminal.output import print_json, say
from cordwood.model.failure import ExitCode, Failure


def delete_each(kind: str, names: Iterable[str], delete_one: Callable[[str], object], *, as_json: bool) -> None:
    """Reports each deleted name. Raises one failure for all names that were not deleted.

    Each name has its own request: a repeated request for all names would fail on those that are already deleted.
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
    """One failure for all: the first one gives the code and the hint."""
    first = next(iter(failures.values()))
    exit_codes = {each.exit_code for each in failures.values()}
    return Failure(
        first.code,
        "; ".join(f"{name}: not deleted: {each.message}" for name, each in failures.items()),
        first.hint,
        first.exit_code if len(exit_codes) == 1 else ExitCode.FAILED,
    )

"""From `cordwood serve`'s flags to a running broker. Imports nothing that a broker does not need.

Flags stand above the environment, which stands above the TOML file.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from cordwood.cli.failure import ExitCode, Failure


class Flags(NamedTuple):
    """What was given on the command line; None where it was not."""

    data_dir: str | None = None
    listen: str | None = None
    config: str | None = None
    assignments: tuple[str, ...] = ()


_LONG_NAMES = {"-d": "--data-dir", "-l": "--listen", "-c": "--config", "-s": "--set"}
_FIELDS = {"--data-dir": "data_dir", "--listen": "listen", "--config": "config"}


def plain_serve_flags(arguments: Sequence[str]) -> Flags | None:
    """The flags, if the arguments are `serve` (or nothing) and flags with values; None if typer must look at them."""
    if arguments and arguments[0] != "serve":
        return None
    values: dict[str, str] = {}
    assignments: list[str] = []
    rest = iter(arguments[1:])
    for word in rest:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        name = _LONG_NAMES.get(name, name)
        if name not in _FIELDS and name != "--set":
            return None
        if not equals:
            following = next(rest, None)
            if following is None or following.startswith("-"):
                return None
            value = following
        if name == "--set":
            assignments.append(value)
        else:
            values[_FIELDS[name]] = value
    return Flags(**values, assignments=tuple(assignments))


def start(flags: Flags) -> int:
    """Runs the broker until it is told to stop. The exit code; what is wrong has been said on stderr."""
    try:
        texts = _flag_texts(flags)
    except Failure as failure:
        print(failure.as_text(), file=sys.stderr)
        return int(failure.exit_code)
    from cordwood.broker import serve
    from cordwood.model.settings import InvalidSetting

    raise NotImplementedError((texts, serve, InvalidSetting, ExitCode))


def _flag_texts(flags: Flags) -> dict[str, str]:
    """The settings that the flags stand for. `--set` is the most particular, so it wins."""
    texts: dict[str, str] = {}
    if flags.data_dir is not None:
        texts["log.dirs"] = flags.data_dir
    if flags.listen is not None:
        texts["listeners"] = flags.listen
    for assignment in flags.assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise Failure(
                "USAGE", f"--set {assignment!r} is not NAME=VALUE", "see `cordwood serve --help`", ExitCode.USAGE
            )
        texts[name.strip()] = value.strip()
    return texts

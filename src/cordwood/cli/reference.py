"""docs/cli.md, generated from the commands themselves: `python -m cordwood.cli.reference > docs/cli.md`.

The page is made from the commands' signatures, not from typer's parser, so that every version of typer gives the same
page.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from types import UnionType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from cordwood.cli.app import app
from cordwood.cli.command import COMMAND_ORDER
from cordwood.model.failure import ExitCode

_PREAMBLE = """# The command line

This page is generated from the commands (`python -m cordwood.cli.reference > docs/cli.md`); a test fails when it is
stale. `cordwood COMMAND --help` shows the same in the terminal.

`cordwood serve` runs a broker; bare `cordwood` shows the help. `cordwood --install-completion` makes TAB complete
commands in bash, zsh and fish. Every other command that talks to a broker is an ordinary Kafka client: it works with
any Kafka-compatible broker, found by `--bootstrap-server`, else `CORDWOOD_BOOTSTRAP`, else `localhost:9092`.

A table fits its terminal: long texts are folded, and on a narrow terminal each row is a block of labelled lines;
nothing is left out. In a pipe a table is a line of names and a line for each row, with tabs in between; `--quiet`
prints names alone. With `NO_COLOR` in the environment no escape sequence is written. Every command that changes a
cluster or a directory has `--dry-run`; a command that loses something asks before, and `--yes` answers.

Results go to stdout, everything else to stderr. With `--json` results are JSON, and so are errors, in one shape:

```json
{"error": {"code": "TOPIC_ALREADY_EXISTS", "message": "Topic 'orders' already exists.", "hint": "--if-not-exists ..."}}
```

`code` is the protocol's name of the error where the broker gave one. The exit code says what happened:

| exit code | meaning |
| --- | --- |
"""

EXIT_CODE_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed: the broker refused, or something went wrong on the way",
    ExitCode.USAGE: "the command line is wrong; nothing was tried",
    ExitCode.NOT_REACHABLE: "no broker answered",
    ExitCode.NOT_FOUND: "a topic, partition, group, file or setting that the command names does not exist",
    ExitCode.PROBLEM_FOUND: (
        "a check was made and found a problem: `cluster status --exit-code`, `config check`, `doctor`, "
        "`transaction list --hanging`, "
        "`inspect --verify`, `history check`, `audit`, a pipeline over its budget or with a row that breaks a "
        "rule, a requeue of which records failed again, `pipeline compare --exit-code`, "
        "`spark repair-checkpoint --dry-run`"
    ),
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C",
}

_TYPE_WORDS = {int: "N", float: "N", str: "TEXT"}


class _Parameter(NamedTuple):
    names: str
    """The names as a user types them: "`--partitions`, `-p` N", or the metavar of an argument."""
    usage: str
    is_argument: bool
    required: bool
    meaning: str


def render() -> str:
    """The whole page."""
    parts = [_PREAMBLE + "".join(f"| {code.value} | {meaning} |\n" for code, meaning in EXIT_CODE_MEANINGS.items())]
    parts.extend(_section(path, command) for path, command in commands(app))
    return "\n".join(parts)


def commands(group: typer.Typer, path: str = "cordwood") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every command with its full name, in the order of the help."""
    named: dict[str, Callable[..., Any] | typer.Typer] = {}
    for command in group.registered_commands:
        assert command.name is not None
        assert command.callback is not None
        named[command.name] = command.callback
    for subgroup in group.registered_groups:
        assert subgroup.name is not None
        assert subgroup.typer_instance is not None
        named[subgroup.name] = subgroup.typer_instance
    for name in sorted(named, key=lambda name: COMMAND_ORDER.index(name) if name in COMMAND_ORDER else -1):
        target = named[name]
        if isinstance(target, typer.Typer):
            yield from commands(target, f"{path} {name}")
        else:
            yield f"{path} {name}", target


def _section(path: str, command: Callable[..., Any]) -> str:
    parameters = list(_parameters(command))
    arguments = [parameter for parameter in parameters if parameter.is_argument]
    options = [parameter for parameter in parameters if not parameter.is_argument]
    usage = " ".join([path, *(["[OPTIONS]"] if options else []), *(argument.usage for argument in arguments)])
    lines = [f"## {path}", "", "```", usage, "```", "", inspect.getdoc(command) or "", ""]
    for title, rows in (("argument", arguments), ("option", options)):
        if rows:
            lines += [f"| {title} | meaning |", "| --- | --- |"]
            lines += [f"| {row.names} | {row.meaning} |" for row in rows]
            lines.append("")
    return "\n".join(lines)


def _parameters(command: Callable[..., Any]) -> Iterator[_Parameter]:
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        annotation = hints[name]
        assert get_origin(annotation) is Annotated, f"{command.__qualname__}: {name} is not annotated"
        kind, info = get_args(annotation)[:2]
        if isinstance(info, ArgumentInfo):
            yield _argument(name, info, kind, required=parameter.default is inspect.Parameter.empty)
        elif isinstance(info, OptionInfo):
            yield _option(name, info, _innermost(kind), parameter.default)


def _argument(name: str, info: ArgumentInfo, kind: Any, *, required: bool) -> _Parameter:
    metavar = info.metavar or name.upper()
    usage = metavar if required else f"[{metavar}]"
    if _is_list(kind):
        usage += "..."
    return _Parameter(f"`{_in_cell(usage)}`", usage, True, required, _in_cell(info.help or ""))


def _option(name: str, info: OptionInfo, kind: type, default: Any) -> _Parameter:
    # typer takes the first name in an annotation for the default, and corrects that later.
    first = [info.default] if isinstance(info.default, str) else []
    declarations = [text for declaration in (*first, *(info.param_decls or ())) for text in declaration.split("/")]
    # typer derives the name of an option without declarations from the parameter's name.
    names = ", ".join(f"`{declaration}`" for declaration in declarations or [f"--{name.replace('_', '-')}"])
    if issubclass(kind, Enum):
        names += " " + "|".join(str(member.value) for member in kind)
    elif kind is not bool:
        names += f" {info.metavar or _TYPE_WORDS[kind]}"
    meaning = info.help or ""
    if isinstance(default, Enum):
        meaning += f" Default: {default.value}."
    elif default not in (None, False, "", inspect.Parameter.empty):
        meaning += f" Default: {default:g}." if isinstance(default, float) else f" Default: {default}."
    if info.envvar:
        meaning += f" Environment: `{info.envvar}`."
    return _Parameter(_in_cell(names), "", False, False, _in_cell(meaning))


def _in_cell(text: str) -> str:
    """The text for a table's cell: a bar would end the cell, even within a code span."""
    return text.replace("|", "\\|")


def _is_list(kind: Any) -> bool:
    """True if an argument may be given several times."""
    return any(get_origin(part) is list for part in (kind, *get_args(kind)))


def _innermost(kind: Any) -> type:
    """The innermost type: `list[str] | None` is str."""
    if isinstance(kind, UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    assert isinstance(kind, type)
    return kind


if __name__ == "__main__":
    sys.stdout.write(render())

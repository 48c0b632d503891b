"""Starts a broker from the flags of `cordwood serve`. Imports nothing that a broker does not need.

Flags override the environment, which overrides the TOML file.
"""

import errno
import os
import sys
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cordwood.model.errors import BadCertificates, BadKeys, EnvironmentFailure, LogFileFailure, SettingsTooNew
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.model.settings.broker_settings import BrokerSettings


LOG_FILE_HINT = (
    "name a file that the broker's user may write, by its whole path, with --log-file or logging.file; without one, "
    "lines go to stderr"
)
METRICS_LISTENER = "metrics.listener"


class Flags(NamedTuple):
    """The flags of the command line; None for a flag that was not given."""

    data_dir: str | None = None
    listen: str | None = None
    config: str | None = None
    cluster: str | None = None
    store: str | None = None
    node_id: str | None = None
    rack: str | None = None
    log_format: str | None = None
    log_file: str | None = None
    assignments: tuple[str, ...] = ()
    secure: bool = False


_LONG_NAMES = {"-d": "--data-dir", "-l": "--listen", "-c": "--config", "-s": "--set"}
_FIELDS = {
    "--data-dir": "data_dir",
    "--listen": "listen",
    "--config": "config",
    "--cluster": "cluster",
    "--store": "store",
    "--node-id": "node_id",
    "--rack": "rack",
    "--log-format": "log_format",
    "--log-file": "log_file",
}


def plain_serve_flags(arguments: Sequence[str]) -> Flags | None:
    """The flags, if the arguments are `serve` and flags with values; None if typer has to read them."""
    if arguments[:1] != ["serve"]:
        return None
    values: dict[str, str] = {}
    assignments: list[str] = []
    secure = False
    rest = iter(arguments[1:])
    for word in rest:
        if word == "--secure":
            secure = True
            continue
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
    return Flags(**values, assignments=tuple(assignments), secure=secure)


def start(flags: Flags, *, as_json: bool = False) -> int:
    """Runs the broker until it is told to stop, prints a failure on stderr, and returns the exit code. `as_json`: the
    ready line, or the failure, is for scripts."""
    try:
        settings = settings_from(flags, os.environ)
        if overridden := overridden_directories(flags, os.environ, settings):
            print(f"warning: {overridden}", file=sys.stderr, flush=True)
        from cordwood.broker import serve

        if not flags.secure:
            refuse_plain_text(settings.data_directories[0], settings.texts)
            return serve(settings, as_json=as_json)
        # Imported only for a secure start, to keep the others quick.
        from cordwood.broker.secure.preparing import prepare

        settings, directory, remark = prepare(settings)
        if remark:
            print(remark, file=sys.stderr, flush=True)
        return serve(settings, as_json=as_json, secure=directory)
    except Failure as failure:
        wrong = failure
    except LogFileFailure as error:
        wrong = Failure("STORAGE", str(error), LOG_FILE_HINT)
    except BadCertificates as error:
        wrong = Failure("CERTIFICATES", str(error))
    except SettingsTooNew as error:
        wrong = Failure("INVALID_CONFIG", str(error), exit_code=ExitCode.USAGE)
    except BadKeys as error:
        wrong = Failure("KEYS", str(error))
    except EnvironmentFailure as error:
        wrong = Failure("STORAGE", str(error))
    except OSError as error:
        wrong = Failure("SYSTEM", str(error), _address_hint(error))
    print(wrong.as_json() if as_json else wrong.as_text(), file=sys.stderr)
    return int(wrong.exit_code)


def _address_hint(error: OSError) -> str:
    """The hint about an address that cannot be bound; empty for other errors."""
    reasons = {
        errno.EADDRINUSE: "another process has that address",
        errno.EACCES: "this user may not bind that port: those below 1024 are for root",
    }
    words = error.strerror or ""
    if "cannot listen on" not in words or error.errno not in reasons:
        return ""
    option = "--set metrics.listener=HOST:PORT" if words.startswith(METRICS_LISTENER) else "--listen"
    return f"{reasons[error.errno]}: give another with {option}, or port 0 for a free one"


def refuse_plain_text(directory: str, named: Container[str]) -> None:
    """Raises Failure for a directory that a secure start made, and settings that ask nobody."""
    from cordwood.broker.secure.plain_text import plain_text_problem, ways_out

    if problem := plain_text_problem(directory, named):
        raise Failure("INSECURE", problem, ways_out("--set authorizer.class.name="), ExitCode.USAGE)


def settings_from(flags: Flags, environment: Mapping[str, str]) -> "BrokerSettings":
    """The settings from flags, environment and file together. Raises Failure."""
    from cordwood.model.settings.configuration import InvalidConfiguration, load_settings

    file_name = flags.config or environment.get("CORDWOOD_CONFIG")
    try:
        return load_settings(
            content_of(file_name) if file_name is not None else "",
            environment,
            _assignments(flags, environment),
            file_name=file_name or "file",
        )
    except InvalidConfiguration as error:
        hint = "`cordwood config list --brokers` shows every setting and its meaning"
        several = f"{len(error.problems)} mistakes in the settings:\n" if len(error.problems) > 1 else ""
        raise Failure("INVALID_CONFIG", f"{several}{error}", hint, ExitCode.USAGE) from error


def overridden_directories(flags: Flags, environment: Mapping[str, str], settings: "BrokerSettings") -> str:
    """A warning that the broker's directories are not those of its file: it would look like a broker that lost its
    records. Empty if they are the same."""
    from cordwood.model.settings.configuration import from_toml

    file_name = flags.config or environment.get("CORDWOOD_CONFIG")
    texts = from_toml(content_of(file_name), file_name) if file_name is not None else {}
    named = texts.get("log.dirs", texts.get("log.dir", settings.log_dirs))
    if named == settings.log_dirs:
        return ""
    return f"{file_name} sets log.dirs to {named}; flags or the environment override it with {settings.log_dirs}"


def content_of(file_name: str) -> str:
    """The text of a configuration file. Raises Failure."""
    try:
        with open(file_name, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        code = ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else ExitCode.FAILED
        raise Failure("INVALID_CONFIG", f"{file_name} cannot be read: {reason}", "", code) from error


def _assignments(flags: Flags, environment: Mapping[str, str]) -> list[str]:
    """Every flag as `name=value`. The last one for a setting holds: `--set` comes last, as the most particular."""
    assignments = []
    data_dir = flags.data_dir or environment.get("CORDWOOD_DATA_DIR")
    listen = flags.listen or environment.get("CORDWOOD_LISTEN")
    for name, value in (
        ("log.dirs", data_dir),
        ("listeners", listen),
        ("cluster.name", flags.cluster),
        ("cluster.store", flags.store),
        ("node.id", flags.node_id),
        ("broker.rack", flags.rack),
        ("logging.format", flags.log_format),
        ("logging.file", flags.log_file),
    ):
        if value is not None:
            assignments.append(f"{name}={value}")
    return [*assignments, *flags.assignments]

"""`cordwood support-bundle`: what somebody who helps from afar asks for, in one file, without records and secrets."""

import io
import json
import os
import re
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cordwood.cli.failure import Failure
from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, AsJson, BootstrapServers, TimeoutSeconds
from cordwood.model.storage_settings import directories_in

if TYPE_CHECKING:
    from cordwood.cli.connection import Connection

LOG_TAIL_BYTES: Final = 1 << 20
METRICS_BYTES: Final = 16 << 20
FILES_LISTED: Final = 100_000
HIDDEN: Final = "(hidden)"
_SECRET_NAMES: Final = re.compile(r"password|secret|token|credential|jaas|(^|\.)key$", re.IGNORECASE)
_USER_IN_URL: Final = re.compile(r"://[^/@\s]+@")

Part = tuple[str, bytes]
"""A file of the bundle: its name and its content."""


def support_bundle(
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default: cordwood-support-TIME.tar.gz in this directory."),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option("--data-dir", "-d", metavar="DIR", help="Default: the directory that the broker names."),
    ] = None,
    log_file: Annotated[
        str | None,
        typer.Option("--log-file", metavar="FILE", help="The broker's own log. Default: the broker's logging.file."),
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Collect what somebody who helps from afar asks for: settings, metrics, the cluster's state, the tail of the log.

    The bundle has no record, no key and no secret: passwords, tokens and users in addresses are hidden, and files are
    listed by name and size only. What could not be had is named in its `missing.txt`: a bundle of a broker that does
    not answer is made as well.
    """
    from cordwood.cli.output import print_json, remark, say

    path = output or time.strftime("cordwood-support-%Y%m%d-%H%M%S.tar.gz", time.gmtime())
    parts, missing = collect(bootstrap_servers, timeout_s, data_dir, log_file)
    _write(path, [*parts, ("missing.txt", "".join(f"{line}\n" for line in missing).encode())])
    if as_json:
        print_json({"file": path, "parts": [name for name, _ in parts], "missing": missing})
        return
    say(f"{path} has {', '.join(name for name, _ in parts)}")
    for line in missing:
        remark(f"missing: {line}")


def collect(
    bootstrap_servers: str, timeout_s: float, data_dir: str | None, log_file: str | None
) -> tuple[list[Part], list[str]]:
    """The parts of a bundle, and a line for each that could not be had."""
    from cordwood.cli.connection import Connection

    connection = Connection(bootstrap_servers, timeout_s)
    parts: list[Part] = []
    missing: list[str] = []
    settings: dict[int, dict[str, str]] = {}

    def attempt(what: str, make: Callable[[], Iterator[Part]]) -> None:
        try:
            parts.extend(make())
        except Failure as failure:
            missing.append(f"{what}: {failure.message}")
        except OSError as error:
            missing.append(f"{what}: {error}")

    def settings_part() -> Iterator[Part]:
        settings.update(_settings_by_broker(connection))
        yield "settings.json", _as_json(settings)

    attempt("about this machine", _about)
    attempt("the brokers' settings", settings_part)
    attempt("the cluster's state", lambda: _state(connection))
    attempt("the metrics", lambda: metrics_of(settings, timeout_s))
    own = next(iter(settings.values()), {}) if len(settings) == 1 else {}
    directory = data_dir or own.get("log.dirs") or "./cordwood-data"
    attempt("the files", lambda: _files_of_all(directories_in(directory)))
    attempt("the machine's health", lambda: _health(directory))
    attempt("the log", lambda: _log_tail(log_file or own.get("logging.file", ""), known=bool(own)))
    return parts, missing


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, with values that nobody else should see hidden."""
    return {
        name: HIDDEN if text and _SECRET_NAMES.search(name) else _USER_IN_URL.sub(f"://{HIDDEN}@", text)
        for name, text in settings.items()
    }


def _about() -> Iterator[Part]:
    import platform

    from cordwood import __version__

    about = {
        "cordwood": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    yield "about.json", _as_json(about)


def _settings_by_broker(connection: "Connection") -> dict[int, dict[str, str]]:
    from cordwood.cli.config.changes import broker_resource
    from cordwood.cli.raw_request import brokers_that_take_part
    from cordwood.cli.topic.view import settings_of

    found = {}
    for broker in brokers_that_take_part(connection):
        settings = settings_of(connection, broker_resource(str(broker)))
        texts = {name: setting.value or "" for name, setting in sorted(settings.items())}
        found[broker] = without_secrets(texts)
    return found


def _state(connection: "Connection") -> Iterator[Part]:
    from cordwood.cli.cluster.status import status_as_json
    from cordwood.cli.cluster.view import cluster_view

    yield "status.json", _as_json(status_as_json(cluster_view(connection)))
    metadata = connection.call(lambda: connection.admin().list_topics(timeout=connection.timeout_s))
    topics = {
        name: [
            {"partition": number, "leader": each.leader, "replicas": each.replicas, "isr": each.isrs}
            for number, each in sorted(topic.partitions.items())
        ]
        for name, topic in sorted(metadata.topics.items())
    }
    yield "topics.json", _as_json(topics)


def metrics_of(settings: Mapping[int, Mapping[str, str]], timeout_s: float) -> Iterator[Part]:
    """The metrics of every broker whose settings say where they are served."""
    from urllib.request import urlopen

    asked = {broker: texts["metrics.listener"] for broker, texts in settings.items() if texts.get("metrics.listener")}
    if not asked:
        raise Failure("NO_METRICS", "no broker that answers has a metrics.listener")
    for broker, address in asked.items():
        with urlopen(f"http://{address}/metrics", timeout=timeout_s) as answer:
            yield f"metrics-{broker}.txt", answer.read(METRICS_BYTES)


def _files_of_all(directories: Sequence[str]) -> Iterator[Part]:
    for number, directory in enumerate(directories, 1):
        yield from _files(directory, "files.txt" if len(directories) == 1 else f"files-{number}.txt")


def _files(directory: str, part: str) -> Iterator[Part]:
    if not os.path.isdir(directory):
        raise Failure("NO_DIRECTORY", f"{directory} is no directory of this machine")
    lines = []
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            found = os.lstat(path)
            lines.append(f"{found.st_size:>14} {int(found.st_mtime)} {os.path.relpath(path, directory)}\n")
            if len(lines) == FILES_LISTED:
                lines.append("(more files are not listed)\n")
                yield part, "".join(lines).encode(errors="surrogateescape")
                return
    yield part, "".join(lines).encode(errors="surrogateescape")


def _health(directory: str) -> Iterator[Part]:
    from cordwood.cli.doctor.command import findings_as_json, findings_of
    from cordwood.model.configuration import load_settings

    yield "doctor.json", _as_json(findings_as_json(findings_of(load_settings(settings={"log.dirs": directory}))))


def _log_tail(path: str, *, known: bool) -> Iterator[Part]:
    """`known`: whether one broker told its settings."""
    if not path and not known:
        raise Failure("NO_LOG", "no broker or several said where they log: name a log with --log-file")
    if not path:
        raise Failure("NO_LOG", "the broker logs to stderr (no logging.file): name its log with --log-file")
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
        yield "log.txt", _USER_IN_URL.sub(f"://{HIDDEN}@", file.read().decode(errors="replace")).encode()


def _as_json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def _write(path: str, parts: list[Part]) -> None:
    with tarfile.open(path, "w:gz") as bundle:
        for name, content in parts:
            entry = tarfile.TarInfo(f"cordwood-support/{name}")
            entry.size = len(content)
            entry.mtime = int(time.time())
            bundle.addfile(entry, io.BytesIO(content))

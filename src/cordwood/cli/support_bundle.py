"""`cordwood support-bundle`: the facts that remote support asks for, in one file, without records and secrets."""

import io
import json
import os
import re
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from cordwood.cli.serving.start import METRICS_LISTENER
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)
from cordwood.model.failure import Failure
from cordwood.model.settings.listeners import EVERY_INTERFACE, PLAINTEXT, host_and_port, parse_address
from cordwood.model.settings.setting import HIDDEN
from cordwood.model.settings.storage_settings import directories_in

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection
    from cordwood.model.settings.broker_settings import BrokerSettings

LOG_TAIL_BYTES: Final = 1 << 20
METRICS_BYTES: Final = 16 << 20
FILES_LISTED: Final = 100_000
_SECRET_NAMES: Final = re.compile(r"password|secret|token|credential|jaas|(^|\.)key$", re.IGNORECASE)
_USER_IN_URL: Final = re.compile(r"://[^/@\s]+@")

_MACHINE_SETTINGS: Final = (
    "node.id",
    "log.dirs",
    "logging.file",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    METRICS_LISTENER,
    "cluster.name",
    "cluster.store",
    "max.connections",
    "open.files.max",
    "queued.max.request.bytes",
    "tail.memory.max.bytes",
    "log.cleaner.dedupe.buffer.size",
)

Part = tuple[str, bytes]
"""A file of the bundle: its name and its content."""


class BrokerHere(NamedTuple):
    """A broker whose files are on this machine."""

    label: str
    """The suffix of the names of its parts: `-1` for broker 1, nothing if the bundle has one broker."""
    settings: "BrokerSettings"
    log_file: str


def support_bundle(
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default: cordwood-support-TIME.tar.gz in this directory."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            envvar="CORDWOOD_CONFIG",
            help="The TOML file of the broker on this machine: names its directories, log and ports.",
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir", "-d", metavar="DIR", help="Default: the directories of the brokers that are on this machine."
        ),
    ] = None,
    log_file: Annotated[
        str | None,
        typer.Option("--log-file", metavar="FILE", help="The broker's own log. Default: the broker's logging.file."),
    ] = None,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Collect the facts that remote support asks for: settings, metrics, the cluster's state, the tail of the log.

    Settings, metrics and state are those of all brokers that answer. Files, health and log are those of the brokers on
    this machine: known by their settings and the node id in their directories, or by `--config`. Run it on each
    machine of a cluster for the others.

    The bundle has no record, no key and no secret: passwords, tokens and users in addresses are hidden, and files are
    listed by name and size only. Its `missing.txt` names the parts that could not be had: a bundle of a broker that
    does not answer is made as well.
    """
    from cordwood.cli.terminal.output import print_json, remark, say

    path = output or time.strftime("cordwood-support-%Y%m%d-%H%M%S.tar.gz", time.gmtime())
    parts, missing = collect(connect(bootstrap_servers, timeout_s, client_config), config, data_dir, log_file)
    _write(path, [*parts, ("missing.txt", "".join(f"{line}\n" for line in missing).encode())])
    if as_json:
        print_json({"file": path, "parts": [name for name, _ in parts], "missing": missing})
        return
    say(f"{path} has {', '.join(name for name, _ in parts)}")
    for line in missing:
        remark(f"missing: {line}")


def collect(
    connection: "Connection", config: str | None, data_dir: str | None, log_file: str | None
) -> tuple[list[Part], list[str]]:
    """The parts of a bundle, and a line for each missing part."""
    parts: list[Part] = []
    missing: list[str] = []
    hosts: dict[int, str] = {}
    settings: dict[int, dict[str, str]] = {}

    def attempt(what: str, make: Callable[[], Iterable[Part]]) -> None:
        try:
            parts.extend(make())
        except Failure as failure:
            missing.append(f"{what}: {failure.message}")
        except OSError as error:
            missing.append(f"{what}: {error}")

    def find_brokers() -> Iterable[Part]:
        from cordwood.administration.brokers import brokers_that_take_part

        hosts.update({broker: host for broker, (host, _) in brokers_that_take_part(connection).items()})
        return ()

    def ask_settings(broker: int) -> Iterable[Part]:
        settings[broker] = _settings_of(connection, broker)
        return ()

    attempt("about this machine", _about)
    attempt("the brokers' settings", find_brokers)
    for broker in hosts:
        attempt(f"the settings of broker {broker}", partial(ask_settings, broker))
    if settings:
        hidden = {broker: without_secrets(texts) for broker, texts in settings.items()}
        parts.append(("settings.json", _as_json(hidden)))
    attempt("the cluster's state", lambda: _state(connection))
    if not any(texts.get(METRICS_LISTENER) for texts in settings.values()):
        missing.append(f"the metrics: no broker that answers has a {METRICS_LISTENER}")
    for broker, texts in settings.items():
        if texts.get(METRICS_LISTENER):
            made = partial(metrics_of, broker, texts[METRICS_LISTENER], hosts[broker], connection.timeout_s)
            attempt(f"the metrics of broker {broker}", made)
    for here in _brokers_here(settings, config, data_dir, log_file):
        attempt(f"the files{here.label}", partial(_files_of_all, here))
        attempt(f"the machine's health{here.label}", partial(_health, here))
        attempt(f"the log{here.label}", partial(_log_tail, here))
    return parts, missing


def _brokers_here(
    told: Mapping[int, Mapping[str, str]], config: str | None, data_dir: str | None, log_file: str | None
) -> list[BrokerHere]:
    """The broker that the command line names; else the answering brokers whose directories are here; else the only one
    that answered, or a broker with the defaults."""
    from cordwood.cli.serving.start import Flags, settings_from
    from cordwood.model.settings.configuration import load_settings

    if config is not None:
        named = settings_from(Flags(config=config, data_dir=data_dir), os.environ)
        return [BrokerHere("", named, log_file or named.logging_file)]
    if data_dir is None and (found := {broker: texts for broker, texts in told.items() if _is_here(broker, texts)}):
        return [
            BrokerHere(
                f"-{broker}" if len(found) > 1 else "",
                load_settings(settings=of_the_machine(texts)),
                log_file if log_file is not None and len(found) == 1 else _log_file_of(texts),
            )
            for broker, texts in found.items()
        ]
    texts = dict(next(iter(told.values()))) if len(told) == 1 else {}
    own = {**of_the_machine(texts), **({"log.dirs": data_dir} if data_dir is not None else {})}
    return [BrokerHere("", load_settings(settings=own), log_file or _log_file_of(texts))]


def _is_here(broker: int, texts: Mapping[str, str]) -> bool:
    """True if the broker's first data directory is on this machine: the same path elsewhere has another node's id."""
    from cordwood.log.directory.identity import read_identity
    from cordwood.log.files.os_filesystem import OsFilesystem
    from cordwood.model.errors import EnvironmentFailure

    first = directories_in(texts.get("log.dirs", ""))[0]
    filesystem = OsFilesystem(first)
    try:
        identity = read_identity(filesystem, first)
    except (EnvironmentFailure, OSError):
        return False
    finally:
        filesystem.close()
    return identity is not None and identity.node_id == broker


def _log_file_of(texts: Mapping[str, str]) -> str:
    """`logging.file`; else the file with the broker's output under `cordwood cluster up`; else nothing."""
    beside = f"{directories_in(texts.get('log.dirs', './cordwood-data'))[0]}.log"
    return texts.get("logging.file") or (beside if os.path.isfile(beside) else "")


def of_the_machine(texts: Mapping[str, str]) -> dict[str, str]:
    """The settings that the doctor looks at. It looks at the ports of listeners, and nobody tells the keys and
    certificates of those with TLS: they are described without."""
    found = {name: texts[name] for name in _MACHINE_SETTINGS if texts.get(name)}
    if "listeners" in found:
        names = [parse_address(each).name for each in found["listeners"].split(",")]
        found["listener.security.protocol.map"] = ",".join(f"{name}:{PLAINTEXT}" for name in names)
    if METRICS_LISTENER in found:
        found[METRICS_LISTENER] = found[METRICS_LISTENER].removeprefix("https://")
    return found


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, with secret values hidden."""
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


def _settings_of(connection: "Connection", broker: int) -> dict[str, str]:
    from cordwood.administration.config.changes import broker_resource
    from cordwood.administration.topic.view import settings_of

    settings = settings_of(connection, broker_resource(str(broker)))
    return {name: setting.value or "" for name, setting in sorted(settings.items())}


def _state(connection: "Connection") -> Iterator[Part]:
    from cordwood.administration.cluster.view import cluster_view, with_releases
    from cordwood.cli.cluster.status import status_as_json

    yield "status.json", _as_json(status_as_json(with_releases(cluster_view(connection), connection.timeout_s)))
    metadata = connection.call(lambda: connection.admin().list_topics(timeout=connection.timeout_s))
    topics = {
        name: [
            {"partition": number, "leader": each.leader, "replicas": each.replicas, "isr": each.isrs}
            for number, each in sorted(topic.partitions.items())
        ]
        for name, topic in sorted(metadata.topics.items())
    }
    yield "topics.json", _as_json(topics)


def metrics_of(broker: int, listener: str, host: str, timeout_s: float) -> Iterator[Part]:
    """The metrics of a broker, from its `metrics.listener`; from `host` if that listens on every interface."""
    from urllib.request import urlopen

    address = parse_address(listener)
    told = host_and_port(host if address.host in EVERY_INTERFACE else address.host, address.port)
    with urlopen(f"http://{told}/metrics", timeout=timeout_s) as answer:
        yield f"metrics-{broker}.txt", answer.read(METRICS_BYTES)


def _files_of_all(here: BrokerHere) -> Iterator[Part]:
    directories = here.settings.data_directories
    for number, directory in enumerate(directories, 1):
        several = f"-{number}" if len(directories) > 1 else ""
        yield from _files(directory, f"files{here.label}{several}.txt")


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


def _health(here: BrokerHere) -> Iterator[Part]:
    from cordwood.cli.doctor.command import findings_as_json
    from cordwood.cli.doctor.measuring import findings_of

    yield f"doctor{here.label}.json", _as_json(findings_as_json(findings_of(here.settings)))


def _log_tail(here: BrokerHere) -> Iterator[Part]:
    if not here.log_file:
        raise Failure("NO_LOG", "no logging.file is known, so the lines went to stderr: name the log with --log-file")
    with open(here.log_file, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
        text = file.read().decode(errors="replace")
        yield f"log{here.label}.txt", _USER_IN_URL.sub(f"://{HIDDEN}@", text).encode()


def _as_json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def _write(path: str, parts: list[Part]) -> None:
    with tarfile.open(path, "w:gz") as bundle:
        for name, content in parts:
            entry = tarfile.TarInfo(f"cordwood-support/{name}")
            entry.size = len(content)
            entry.mtime = int(time.time())
            bundle.addfile(entry, io.BytesIO(content))

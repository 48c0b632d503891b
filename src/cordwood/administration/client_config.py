"""The file with the settings of a client, under librdkafka's names: how to reach brokers that ask for TLS or a log-in.

One setting a line, `name=value`; empty lines and lines that begin with `#` count for nothing.
"""

from collections.abc import Mapping

from cordwood.model.failure import ExitCode, Failure

_OF_JAVA = frozenset({"sasl.jaas.config", "ssl.truststore.location", "ssl.truststore.certificates"})


def read_client_config(path: str) -> dict[str, str]:
    """The settings of the file. Raises Failure."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        code = ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else ExitCode.FAILED
        raise Failure("INVALID_CONFIG", f"the client's settings {path} cannot be read: {reason}", "", code) from error
    settings: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name:
            raise Failure("INVALID_CONFIG", f"{path}, line {number}: not name=value", "", ExitCode.USAGE)
        settings[name] = value
    _refuse_java(settings, path)
    return settings


def _refuse_java(settings: Mapping[str, str], path: str) -> None:
    if found := sorted(_OF_JAVA & settings.keys()):
        raise Failure(
            "INVALID_CONFIG",
            f"{path} has {found[0]}, a setting of Java's clients",
            "librdkafka has sasl.username, sasl.password and ssl.ca.location; "
            "`cordwood serve --secure` writes both files",
            ExitCode.USAGE,
        )

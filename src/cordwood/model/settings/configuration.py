"""A broker's configuration from its sources: defaults < TOML file < environment < flags, or a program's settings.

The module works on texts: the caller reads the file and the environment.

- The TOML file has the settings by name, `log.retention.ms = 3600000` or under tables (`[log]`, `retention.ms = ...`).
- The environment has them as `CORDWOOD_LOG_RETENTION_MS`.
- Flags have them as `log.retention.ms=3600000`.

Durations and sizes may have a unit: `log.retention.ms=1d`, `log.retention.bytes=10GiB`. A name that is not a setting
is an error that suggests the nearest one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from cordwood.model.quantities import in_plain_unit
from cordwood.model.settings.broker_settings import (
    BROKER_SETTINGS,
    COARSER_UNITS,
    OTHER_NAMES,
    TOPIC_SETTING_BY_BROKER_NAME,
    BrokerSettings,
    broker_setting,
)
from cordwood.model.settings.by_listener import PREFIX, listener_setting
from cordwood.model.settings.setting import InvalidSetting, Kind, Setting, attribute_of

ENVIRONMENT_PREFIX = "CORDWOOD_"
NOT_SETTINGS = frozenset(
    {
        "CORDWOOD_BOOTSTRAP",
        "CORDWOOD_CLIENT_CONFIG",
        "CORDWOOD_CONFIG",
        "CORDWOOD_DATA_DIR",
        "CORDWOOD_DEMO_SPARK",
        "CORDWOOD_ETCD_PASSWORD",
        "CORDWOOD_LISTEN",
        "CORDWOOD_PIPELINES",
        "CORDWOOD_USER_PASSWORD",
    }
)
"""Variables that belong to the command line, to pipelines and to Spark, and a password, which is no setting: settings
are shown to clients."""

_NAMES = (*BROKER_SETTINGS, *COARSER_UNITS, *OTHER_NAMES)


class InvalidConfiguration(InvalidSetting):
    """The broker does not start with a configuration; the message names the place and the reason of every mistake."""


def load_settings(
    toml: str = "",
    environment: Mapping[str, str] | None = None,
    flags: Iterable[str] = (),
    settings: Mapping[str, str] | None = None,
    *,
    file_name: str = "file",
) -> BrokerSettings:
    """The settings of all sources together: `settings` are those that a program gives by name.

    Raises InvalidConfiguration, which names every mistake of all sources. Contradictions between settings are found
    only if each setting is valid by itself.
    """
    texts: dict[str, str] = {}
    problems: list[str] = []
    layers: list[tuple[str, Callable[[], Mapping[str, str]]]] = [
        (file_name, lambda: from_toml(toml, file_name)),
        ("environment", lambda: from_environment(environment or {})),
        ("flags", lambda: from_flags(flags)),
        ("settings", lambda: settings or {}),
    ]
    for source, read in layers:
        try:
            texts.update(_normal(read(), source))
        except InvalidConfiguration as error:
            problems.extend(error.problems)
    if problems:
        raise InvalidConfiguration(*problems)
    try:
        return BrokerSettings.from_texts(texts)
    except InvalidSetting as error:
        raise InvalidConfiguration(*error.problems) from None


def problems_of(toml: str, file_name: str = "file") -> list[str]:
    """The mistakes of a configuration file by itself; empty if a broker starts with it."""
    try:
        load_settings(toml, file_name=file_name)
    except InvalidConfiguration as error:
        return [each if each.startswith(file_name) else f"{file_name}: {each}" for each in error.problems]
    return []


def from_toml(toml: str, file_name: str = "file") -> dict[str, str]:
    """The texts of a TOML document, by dotted name."""
    if not toml:
        return {}
    # Most brokers start without a file, and every import delays the start.
    import tomllib

    try:
        document = tomllib.loads(toml)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfiguration(f"{file_name} is not valid TOML: {error}{_toml_hint(error)}") from None
    texts: dict[str, str] = {}
    problems = []
    for name, value in _flat(document, ""):
        if (text := _text_of(value)) is None:
            problems.append(f"{file_name}: {name} must be a string, a number, a boolean or a list of strings")
        elif name in texts:
            problems.append(f"{file_name} sets {name} twice")
        else:
            texts[name] = text
    if not problems:
        return texts
    try:
        _normal(texts, file_name)
    except InvalidConfiguration as error:
        problems.extend(error.problems)
    raise InvalidConfiguration(*problems)


def _toml_hint(error: ValueError) -> str:
    if "overwrite" not in str(error):
        return ""
    return (
        "; where a name begins with another one that the file sets, put such names in quotes, as in "
        '"max.connections.per.ip" = 10'
    )


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _text_of(value: object) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float() | str():
            return str(value)
        case list() if all(isinstance(part, str | int) for part in value):
            return ",".join(map(str, value))
    return None


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The texts of the variables that start with CORDWOOD_."""
    by_variable = {variable_name(name): name for name in _NAMES}
    texts: dict[str, str] = {}
    unknown = []
    for variable, text in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS:
            continue
        name = by_variable.get(variable) or _of_listener(variable)
        if name is None:
            unknown.append(f"The environment variable {variable} is not a setting{_hint(variable, by_variable)}")
        else:
            texts[name] = text
    if unknown:
        raise InvalidConfiguration(*unknown)
    return texts


def _of_listener(variable: str) -> str | None:
    """The setting of one listener that such a variable sets; None for other variables."""
    rest = variable.removeprefix(variable_name(PREFIX))
    for name, setting in BROKER_SETTINGS.items():
        ending = "_" + attribute_of(name).upper()
        if setting.by_listener and rest != variable and rest.endswith(ending):
            return listener_setting(rest.removesuffix(ending), name)
    return None


def variable_name(name: str) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT_PREFIX + attribute_of(name).upper()


def from_flags(flags: Iterable[str]) -> dict[str, str]:
    """The texts of `name=value` flags; the later of two with one name holds."""
    texts = {}
    for flag in flags:
        name, equals, text = flag.partition("=")
        if not equals:
            raise InvalidConfiguration(f"{flag!r} must be of the form name=value")
        name = name.strip()
        setting = broker_setting(name)
        if setting is not None and setting.secret:
            raise InvalidConfiguration(
                f"{name} is a secret, and whoever lists the processes of this machine sees flags: set it in the "
                f"configuration file (--config FILE), or in the environment as {variable_name(name)}"
            )
        texts[name] = text
    return texts


def _normal(texts: Mapping[str, str], source: str) -> dict[str, str]:
    """One source's texts under the names of the table; texts in coarser units are converted to milliseconds."""
    normal: dict[str, str] = {}
    problems: list[str] = []
    by_factor = sorted(texts, key=lambda name: -COARSER_UNITS[name].factor if name in COARSER_UNITS else 0)
    for name in by_factor:
        try:
            table_name, text = _normal_one(name, texts[name], source)
        except InvalidConfiguration as error:
            problems.extend(error.problems)
        else:
            normal[table_name] = text
    if problems:
        raise InvalidConfiguration(*problems)
    return normal


def _normal_one(name: str, text: str, source: str) -> tuple[str, str]:
    text = _plain(name, text, source)
    if name in COARSER_UNITS:
        finer, factor = COARSER_UNITS[name]
        _check(_coarse(name), text, source)
        return finer, _in_finer_unit(name, text, factor)
    table_name = OTHER_NAMES.get(name, name)
    setting = broker_setting(table_name)
    if setting is None:
        raise InvalidConfiguration(f"{source}: {unknown_name('broker', name, BROKER_SETTINGS)}")
    _check(setting, text, source)
    return table_name, text


def _plain(name: str, text: str, source: str) -> str:
    """Converts a duration or a size with a unit to the number that the setting takes."""
    try:
        return in_plain_unit(name, text)
    except ValueError as reason:
        raise InvalidConfiguration(f"{source}: Invalid value {text} for configuration {name}: {reason}") from None


def _check(setting: Setting, text: str, source: str) -> None:
    try:
        setting.parse(text)
    except InvalidSetting as error:
        raise InvalidConfiguration(f"{source}: {error}") from None


def _coarse(name: str) -> Setting:
    return Setting(name, Kind.INT, 0, "", low=-1)


def _in_finer_unit(name: str, text: str, factor: int) -> str:
    value = _coarse(name).parse(text)
    assert isinstance(value, int)
    # -1 means "no limit" in every unit.
    return str(value * factor if value > 0 else value)


def unknown_name(what: str, name: str, table: Mapping[str, Setting]) -> str:
    """The error text for a name that is not in a table, with the nearest name that is."""
    message = f"Unknown {what} config name: {name}"
    if what == "broker":
        for broker_name, setting in TOPIC_SETTING_BY_BROKER_NAME.items():
            if setting.name == name:
                return f"{message}; it is a topic's setting, whose default on the broker is {broker_name}"
    return message + _hint(name, table)


_LONGEST_HINTED = 120
"""The longest name, in characters, for which a hint is searched: no setting's name has more than 60."""

_ALIKE = 0.6
"""The least share of common letter pairs at which one name may stand for the other."""


def _hint(name: str, names: Iterable[str]) -> str:
    """The nearest of the names. Clients send thousands of unknown names at a time: one takes some 100 us, and long
    names are skipped."""
    if len(name) > _LONGEST_HINTED:
        return ""
    wanted = _pairs_of(name)
    most_alike, nearest = _ALIKE, ""
    for candidate in names:
        pairs = _pairs(candidate)
        alike = 2 * len(wanted & pairs) / (len(wanted) + len(pairs) or 1)
        if alike > most_alike:
            most_alike, nearest = alike, candidate
    return f"; did you mean {nearest}?" if nearest else ""


def _pairs_of(name: str) -> frozenset[str]:
    """The pairs of neighbouring letters of a name."""
    return frozenset(map("".join, pairwise(name)))


_pairs = cache(_pairs_of)
"""A cache for the names of settings, which are few."""

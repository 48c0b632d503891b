"""docs/configuration.md, written from the tables of settings."""

from cordwood.model.settings.broker_settings import (
    BROKER_SETTINGS,
    COARSER_UNITS,
    OTHER_NAMES,
    TOPIC_SETTING_BY_BROKER_NAME,
)
from cordwood.model.settings.configuration import variable_name
from cordwood.model.settings.group_settings import ONE_GROUP_SETTINGS
from cordwood.model.settings.setting import Kind, Setting
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS

_KINDS = {
    Kind.BOOLEAN: "boolean",
    Kind.STRING: "string",
    Kind.INT: "int",
    Kind.SHORT: "short",
    Kind.LONG: "long",
    Kind.DOUBLE: "double",
    Kind.LIST: "list",
    Kind.PASSWORD: "password",
}
_UNBOUNDED = 2**63 - 1

_INTRODUCTION = """\
# Configuration

<!-- Generated: python -m cordwood.model.settings.configuration_reference > docs/configuration.md -->

Settings have Apache Kafka's names where Kafka has them. A broker reads them from these places; a later one overrides an
earlier one:

1. the defaults on this page
2. a TOML file: `cordwood serve --config FILE`
3. environment variables: `{variable}` for `log.retention.ms`
4. flags: `cordwood serve --set log.retention.ms=3600000`, as often as needed
5. settings that were altered while a broker ran: the cluster's metadata holds them, also over restarts. At its start a
   broker warns in its log of each setting of 2 to 4 that such a one overrides. `cordwood config alter --broker 1
   --delete log.retention.ms` deletes the stored one

```toml
listeners = "PLAINTEXT://0.0.0.0:9092"
num.partitions = 3

[log]
dirs = "/var/lib/cordwood"
retention.ms = "1d"
```

A name that is not on this page is an error, not ignored.

A listener may have its own values of settings of TLS and SASL: `listener.name.clients.ssl.client.auth` is for the
listener CLIENTS (its name in small letters; `https` is `metrics.listener`). Settings of the type password are
secrets: they stand in the file or in the environment, `--set` refuses them, and they are shown to nobody.

Durations and sizes may have a unit, in all these places and in the commands: `log.retention.ms=1d` (`ms`, `s`, `m`,
`h`, `d`, `w`), `log.retention.bytes=10GiB` (`KiB`, `MiB`, `GiB`, `TiB`; `k`, `m`, `g`, `t` mean the same). A number
without one is in the unit that the setting's name says, as in Kafka. Over the protocol settings are plain numbers.

A topic's settings are given when it is created, or altered later (`cordwood topic create`, `cordwood topic alter`, or
any Kafka client). A setting that a topic does not have comes from the broker, under the name in the column
"broker-wide default". Those can also be altered while the broker runs (IncrementalAlterConfigs on a broker, or on all
brokers with an empty name); all other broker settings are read when it starts.
"""


_OF_GROUPS = """\
Set on one consumer group, before it has members or while they work (`cordwood config alter --group billing --set
consumer.session.timeout.ms=30s`, `kafka-configs.sh --entity-type groups`, or any admin client that knows the resource
type GROUP). A new value holds from each member's next heartbeat on. Kafka's
settings of share and streams groups are refused: there are no such groups here.
"""

_OF_LOGGERS = """\
The level of each of the broker's loggers (`cordwood`, `cordwood.node`, ...) can be seen and set while it runs: TRACE,
DEBUG, INFO, WARN, ERROR or FATAL (`kafka-configs.sh --entity-type broker-loggers --entity-name 1 --alter --add-config
cordwood.broker=DEBUG`, or any admin client that knows the resource type BROKER_LOGGER). It holds until the broker
stops. A logger whose level is deleted has that of the logger above it."""


def reference_markdown() -> str:
    """The whole page."""
    own = [setting for name, setting in BROKER_SETTINGS.items() if name not in TOPIC_SETTING_BY_BROKER_NAME]
    lines = [
        _INTRODUCTION.format(variable=variable_name("log.retention.ms")),
        "## Broker settings",
        "",
        "| name | type | default | valid | meaning |",
        "| --- | --- | --- | --- | --- |",
        *(_row(setting) for setting in own),
        "",
        "Other spellings that are accepted, as in Kafka:",
        "",
        *(f"- `{name}` for `{table_name}`" for name, table_name in sorted(OTHER_NAMES.items())),
        *(
            f"- `{name}` for `{unit.name}`, in {name.rpartition('.')[2]}; if one place gives several, the finest holds"
            for name, unit in sorted(COARSER_UNITS.items())
        ),
        "",
        "## Topic settings",
        "",
        "| name | type | default | valid | broker-wide default | meaning |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            _row(setting, f"`{setting.broker_name}`" if setting.broker_name else "")
            for setting in TOPIC_SETTINGS.values()
        ),
        "",
        "## Group settings",
        "",
        _OF_GROUPS,
        "| name | type | default | valid | broker-wide default | meaning |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_row(setting, f"`{setting.broker_name}`") for setting in ONE_GROUP_SETTINGS.values()),
        "",
        "## Levels of loggers",
        "",
        _OF_LOGGERS,
    ]
    return "\n".join(lines) + "\n"


def _row(setting: Setting, *columns: str) -> str:
    default = setting.format(setting.default)
    if setting.default == _UNBOUNDED:
        default = f"{default} (no limit)"
    elif default == "":
        default = "(none)"
    cells = [f"`{setting.name}`", _KINDS[setting.kind], default, _valid(setting), *columns, setting.meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _valid(setting: Setting) -> str:
    if setting.choices is not None:
        return ", ".join(setting.choices)
    bounds = []
    if setting.low is not None:
        bounds.append(f">= {setting.low:g}" if setting.low < 10_000 else f">= {setting.low:.0f}")
    if setting.high is not None:
        bounds.append(f"<= {setting.high:g}")
    return ", ".join(bounds)


if __name__ == "__main__":
    print(reference_markdown(), end="")

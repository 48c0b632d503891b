"""Changing settings of a topic, a group or a broker, with a hint for a mistyped name."""

from collections.abc import Iterable, Mapping

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from cordwood.administration.asking import ask, first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.config.setting_tables import known_settings
from cordwood.administration.connection import Connection
from cordwood.model.errors import code_name
from cordwood.model.failure import Failure, near_names
from cordwood.wire.apis import ApiKey


def topic_resource(topic: str) -> ConfigResource:
    return ConfigResource(ConfigResource.Type.TOPIC, topic)


def group_resource(group: str) -> ConfigResource:
    return ConfigResource(ConfigResource.Type.GROUP, group)


def broker_resource(broker: str) -> ConfigResource:
    return ConfigResource(ConfigResource.Type.BROKER, broker)


def change_settings(
    connection: Connection,
    resource: ConfigResource,
    settings: Mapping[str, str],
    defaults: Iterable[str],
    *,
    validate_only: bool = False,
) -> None:
    """Sets `settings` and puts `defaults` back to their defaults, in one request: all or nothing. With `validate_only`
    the broker checks the changes, and makes none."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ] + [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in defaults]
    changed = ConfigResource(resource.restype, resource.name, incremental_configs=entries)
    try:
        connection.ask(lambda admin: admin.incremental_alter_configs([changed], validate_only=validate_only)[changed])
    except Failure as failure:
        if failure.code == "UNKNOWN_TOPIC_OR_PARTITION":
            raise connection.unknown_topic(resource.name) from failure
        if failure.code == "INVALID_CONFIG":
            raise with_near_names(failure, [*settings, *defaults]) from failure
        raise


def change_broker(
    connection: Connection,
    broker_id: int | None,
    settings: Mapping[str, str],
    defaults: Iterable[str],
    *,
    validate_only: bool = False,
) -> None:
    """Changes settings by way of any broker that answers: the broker itself may be away. `broker_id` None: the default
    of all brokers. Raises Failure."""
    configs = [
        {"name": name, "config_operation": AlterConfigOpType.SET.value, "value": value}
        for name, value in settings.items()
    ] + [{"name": name, "config_operation": AlterConfigOpType.DELETE.value, "value": None} for name in defaults]
    resource = {
        "resource_type": ConfigResource.Type.BROKER.value,
        "resource_name": _broker_name(broker_id),
        "configs": configs,
    }
    values = {"resources": [resource], "validate_only": validate_only}
    _, answer = first_answer(
        brokers(connection),
        lambda asked: ask(asked, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values, connection.timeout_s),
    )
    for each in answer.responses:
        if each.error_code:
            who = "the default of all brokers" if broker_id is None else f"broker {broker_id}"
            failure = Failure(code_name(each.error_code), each.error_message or f"{who} is not changed")
            raise with_near_names(failure, [*settings, *defaults])


def _broker_name(broker_id: int | None) -> str:
    return "" if broker_id is None else str(broker_id)


def with_near_names(failure: Failure, names: Iterable[str]) -> Failure:
    """The same failure; for a name that is no setting, its hint has similar names of settings."""
    known = known_settings()
    for name in names:
        if name not in known and (near := near_names(name, known)):
            return Failure(failure.code, failure.message, near, failure.exit_code)
    return failure

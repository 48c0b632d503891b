"""Settings, seen and changed: DescribeConfigs, IncrementalAlterConfigs, AlterConfigs, ListConfigResources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from cordwood.cluster.config_descriptions import ConfigEntry, ConfigSynonym, config_resources, describe_configs, told
from cordwood.cluster.planner.configs import ConfigAlteration, ConfigChange, ConfigResource, ResourceType
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.logger_configs import alter_loggers, describe_loggers
from cordwood.node.requests.outcomes import each_outcome, status
from cordwood.node.requests.request import Made, Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.requests.access import Judge
    from cordwood.node.requests.logger_configs import LogLevels
    from cordwood.wire.message_types.alter_configs import AlterConfigs
    from cordwood.wire.message_types.describe_configs import DescribeConfigs
    from cordwood.wire.message_types.incremental_alter_configs import IncrementalAlterConfigs
    from cordwood.wire.message_types.list_config_resources import ListConfigResources

    Outcomes = Mapping[ConfigResource, ConfigAlteration | ProtocolError | None]


class ConfigRooms(Protocol):
    """The rooms of a node that these handlers need."""

    image: ClusterImage
    log_levels: LogLevels
    loop: Loop
    reports: Reports


def describe(rooms: ConfigRooms, request: Request[DescribeConfigs]) -> Steps:
    body = yield from request.read()
    # A resource that is asked for more than once is answered once.
    resources = {ConfigResource(asked.resource_type, asked.resource_name): asked for asked in reversed(body.resources)}

    def entry(found: ConfigEntry) -> DescribeConfigs.AnswerConfig:
        return _described(found, body.include_synonyms, body.include_documentation)

    judge = request.judge

    def result(asked: DescribeConfigs.RequestResource) -> DescribeConfigs.AnswerResult:
        outcome: list[ConfigEntry] | ProtocolError
        try:
            resource = ConfigResource(asked.resource_type, asked.resource_name)
            refusal = _refusal(judge, Operation.DESCRIBE_CONFIGS, resource)
            if refusal is not None:
                raise refusal
            outcome = _describe(rooms, resource, asked.configuration_keys)
        except ProtocolError as refusal:
            outcome = refusal
        return {
            **status(outcome),
            "resource_type": asked.resource_type,
            "resource_name": asked.resource_name,
            "configs": () if isinstance(outcome, ProtocolError) else Made(outcome, entry),
        }

    request.answer(results=Made(list(reversed(resources.values())), result))


def _refusal(judge: Judge, operation: Operation, resource: ConfigResource) -> ProtocolError | None:
    """The answer to somebody without the right to settings of this resource, or None."""
    if resource.resource_type == ResourceType.TOPIC:
        return judge.refusal(operation, ResourceKind.TOPIC, resource.name)
    if resource.resource_type == ResourceType.GROUP:
        return judge.refusal(operation, ResourceKind.GROUP, resource.name)
    return judge.refusal(operation, ResourceKind.CLUSTER)


def _describe(rooms: ConfigRooms, resource: ConfigResource, names: Sequence[str] | None) -> list[ConfigEntry]:
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        return describe_loggers(rooms.log_levels, rooms.image.node_id, resource.name, names)
    return describe_configs(rooms.image, resource, names)


def _described(entry: ConfigEntry, synonyms: bool, documentation: bool) -> DescribeConfigs.AnswerConfig:
    return {
        "name": entry.name,
        "value": entry.told_value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": entry.is_sensitive,
        "synonyms": [_synonym(each) for each in entry.synonyms] if synonyms else (),
        "config_type": entry.kind,
        "documentation": entry.documentation if documentation else None,
    }


def _synonym(synonym: ConfigSynonym) -> DescribeConfigs.AnswerSynonym:
    return {"name": synonym.name, "value": told(synonym.value), "source": synonym.source}


def incremental_alter(rooms: ConfigRooms, request: Request[IncrementalAlterConfigs]) -> Steps:
    body = yield from request.read()
    asked = [
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            [ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in body.resources
    ]
    resources = [resource for resource, _ in asked]
    refused = _refused(request.judge, resources)
    asked = [each for each in asked if each[0] not in refused]
    # Levels of loggers belong to this process and are not stored.
    loggers = _alter_loggers(rooms, asked, validate_only=body.validate_only)
    stored = [(resource, changes) for resource, changes in asked if resource not in loggers]
    settled = {**loggers, **refused}

    def altered(outcomes: Outcomes | Exception) -> None:
        _altered(rooms, request, resources, outcomes, settled)

    if not stored:
        altered({})
        return
    rooms.loop.effects.metadata(
        lambda writer: writer.incremental_alter_configs(stored, validate_only=body.validate_only), altered
    )


def _alter_loggers(
    rooms: ConfigRooms, asked: list[tuple[ConfigResource, list[ConfigChange]]], *, validate_only: bool
) -> dict[ConfigResource, ProtocolError | None]:
    outcomes: dict[ConfigResource, ProtocolError | None] = {}
    for resource, changes in asked:
        if resource.resource_type != ResourceType.BROKER_LOGGER:
            continue
        try:
            if resource in outcomes:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            alter_loggers(rooms.log_levels, rooms.image.node_id, resource.name, changes, validate_only=validate_only)
            outcomes[resource] = None
        except ProtocolError as refusal:
            outcomes[resource] = refusal
    return outcomes


def alter(rooms: ConfigRooms, request: Request[AlterConfigs]) -> Steps:
    body = yield from request.read()
    asked = [
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            [(config.name, config.value) for config in resource.configs],
        )
        for resource in body.resources
    ]
    resources = [resource for resource, _ in asked]
    refused = _refused(request.judge, resources)
    allowed = [each for each in asked if each[0] not in refused]

    def altered(outcomes: Outcomes | Exception) -> None:
        _altered(rooms, request, resources, outcomes, refused)

    if not allowed:
        altered({})
        return
    rooms.loop.effects.metadata(
        lambda writer: writer.replace_configs(allowed, validate_only=body.validate_only), altered
    )


def _refused(judge: Judge, resources: list[ConfigResource]) -> dict[ConfigResource, ProtocolError | None]:
    """The resources whose settings the principal may not change, with the answer for each."""
    if not judge.asks:
        return {}
    refusals = ((resource, _refusal(judge, Operation.ALTER_CONFIGS, resource)) for resource in resources)
    return {resource: refusal for resource, refusal in refusals if refusal is not None}


def _altered(
    rooms: ConfigRooms,
    request: Request[AlterConfigs] | Request[IncrementalAlterConfigs],
    resources: list[ConfigResource],
    outcomes: Outcomes | Exception,
    settled: dict[ConfigResource, ProtocolError | None],
) -> None:
    """Answers with the outcomes of stored settings, and those that were settled here."""

    def response(altered: tuple[ConfigResource, object]) -> AlterConfigs.AnswerResponse:
        resource, outcome = altered
        return {**status(outcome), "resource_type": resource.resource_type, "resource_name": resource.name}

    asked = list(dict.fromkeys(resources))
    found = dict(each_outcome(rooms.reports, outcomes, [each for each in asked if each not in settled]))
    found |= settled
    request.answer(responses=Made([(each, found[each]) for each in asked], response))


def list_resources(rooms: ConfigRooms, request: Request[ListConfigResources]) -> None:
    """Lists resources with settings. Version 0 asks for client metrics, and this broker has none."""
    body = request.decode()
    wanted = [ResourceType.CLIENT_METRICS] if request.version == 0 else list(body.resource_types)
    error, resources = ErrorCode.NONE, list[ConfigResource]()
    try:
        refusal = request.judge.refusal(Operation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER)
        if refusal is not None:
            raise refusal
        resources = config_resources(rooms.image, wanted)
    except ProtocolError as refusal:
        error = refusal.code
    request.answer(
        error_code=error,
        config_resources=Made(
            resources, lambda each: {"resource_name": each.name, "resource_type": each.resource_type}
        ),
    )


HANDLERS = (
    serves(ApiKey.DESCRIBE_CONFIGS, 1, 4, describe),
    serves(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, incremental_alter),
    serves(ApiKey.ALTER_CONFIGS, 0, 2, alter),
    serves(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, list_resources),
)

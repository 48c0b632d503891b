"""`cordwood acl add`."""

from collections.abc import Sequence
from itertools import product
from typing import Annotated, NamedTuple

import typer

from cordwood.cli.acl.named import (
    Cluster,
    Groups,
    Host,
    Principal,
    Resource,
    Topics,
    TransactionalIds,
    checked_rules,
    operation_of,
    pattern_of,
    principal_of,
    resources_of,
)
from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TimeoutSeconds, checked_name, checked_names
from cordwood.model.acls import EVERYTHING, Acl, Pattern, Permission
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.operations import ResourceKind


class _Programs(NamedTuple):
    """The programs that need rights; None or False for an option that was not given."""

    producer: bool
    consumer: bool
    streams: str | None
    spark: str | None
    pipeline: str | None


def add_rules(
    principal: Principal,
    operations: Annotated[
        list[str] | None,
        typer.Option("--operation", "-o", metavar="NAME", help="Read, Write, Create, ... or All.", show_default=False),
    ] = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    cluster: Cluster = False,
    prefixed: Annotated[
        bool, typer.Option("--prefixed", help="The names are the beginnings of the resources' names.")
    ] = False,
    host: Host = EVERYTHING,
    deny: Annotated[
        bool, typer.Option("--deny", help="Refuse instead of allow: a refusal wins over what other rules allow.")
    ] = False,
    producer: Annotated[
        bool,
        typer.Option("--producer", help="All that a producer to the topics needs, with --transactional-id if it has."),
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="All that a consumer of the topics in the groups needs.")
    ] = False,
    streams: Annotated[
        str | None,
        typer.Option(
            "--streams",
            metavar="APP",
            callback=checked_name,
            help="All that an application of Kafka Streams with this application.id needs for itself.",
            show_default=False,
        ),
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(
            "--spark",
            metavar="QUERY",
            callback=checked_name,
            help="All that a streaming query on Spark needs for itself: its queryName, and the `family` of its sink.",
            show_default=False,
        ),
    ] = None,
    pipeline: Annotated[
        str | None,
        typer.Option(
            "--pipeline",
            metavar="NAME",
            callback=checked_name,
            help="All that a pipeline with all its editions needs.",
            show_default=False,
        ),
    ] = None,
    reads: Annotated[
        list[str] | None,
        typer.Option(
            "--reads",
            metavar="TOPIC",
            callback=checked_names,
            help="With --streams, --spark, --pipeline: a topic that the program reads.",
        ),
    ] = None,
    writes: Annotated[
        list[str] | None,
        typer.Option(
            "--writes",
            metavar="TOPIC",
            callback=checked_names,
            help="With --streams, --spark, --pipeline: a topic that the program writes.",
        ),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Add rules: what a principal may do with which resources.

    Either single rights (`cordwood acl add alice --operation Read --topic orders`), or all that a program needs
    (`cordwood acl add alice --consumer --topic orders --group shop`).
    """
    from cordwood.administration.access.acls import add_rules as add
    from cordwood.administration.access.acls import as_json as rule_as_json
    from cordwood.cli.terminal.output import print_json, remark, say

    named = resources_of(topics, groups, transactional_ids, cluster=cluster)
    programs = _Programs(producer, consumer, streams, spark, pipeline)
    if any(programs):
        if operations or deny or cluster:
            raise _usage("a program needs fixed rights: --operation, --deny and --cluster do not go with it")
        acls = _of_programs(
            principal_of(principal), host, programs, named, reads or (), writes or (), prefixed=prefixed
        )
    else:
        if reads or writes:
            raise _usage("--reads and --writes go with --streams, --spark and --pipeline")
        acls = _single(principal_of(principal), host, operations or (), named, deny=deny, prefixed=prefixed)
    acls = checked_rules(acls)
    if not dry_run:
        add(connect(bootstrap_servers, timeout_s, client_config), acls)
    if as_json:
        print_json({"rules": [rule_as_json(acl) for acl in acls], **as_dry(dry_run)})
        return
    for acl in acls:
        say(str(acl))
    if dry_run:
        remark(DRY_RUN)


def _single(
    principal: str, host: str, operations: Sequence[str], named: Sequence[Resource], *, deny: bool, prefixed: bool
) -> list[Acl]:
    if not operations or not named:
        raise _usage("an operation and a resource are needed, or a program")
    permission = Permission.DENY if deny else Permission.ALLOW
    found = []
    for (kind, name), operation in product(named, map(operation_of, operations)):
        pattern, _ = pattern_of(name, prefixed=prefixed and kind is not ResourceKind.CLUSTER)
        found.append(Acl(kind, pattern, name, principal, host, operation, permission))
    return found


def _of_programs(
    principal: str,
    host: str,
    programs: _Programs,
    named: Sequence[Resource],
    reads: Sequence[str],
    writes: Sequence[str],
    *,
    prefixed: bool,
) -> list[Acl]:
    from cordwood.administration.access.programs import Rules

    def patterns(kind: ResourceKind) -> list[tuple[Pattern, str]]:
        return [pattern_of(name, prefixed=prefixed) for each, name in named if each is kind]

    topics, groups = patterns(ResourceKind.TOPIC), patterns(ResourceKind.GROUP)
    if (programs.producer or programs.consumer) and not topics:
        raise _usage("a producer or a consumer needs --topic")
    if programs.consumer and not groups:
        raise _usage("a consumer needs --group")
    if not (programs.streams or programs.spark or programs.pipeline) and (reads or writes):
        raise _usage("--reads and --writes go with --streams, --spark and --pipeline")
    read = [pattern_of(name, prefixed=prefixed) for name in reads]
    written = [pattern_of(name, prefixed=prefixed) for name in writes]
    rules = Rules(principal, host)
    if programs.producer:
        rules.produce(topics, patterns(ResourceKind.TRANSACTIONAL_ID))
    if programs.consumer:
        rules.consume(topics, groups)
    if programs.streams:
        rules.streams(programs.streams)
    if programs.spark:
        rules.spark(programs.spark)
    if programs.streams or programs.spark:
        rules.consume(read, ())
        rules.produce(written)
    if programs.pipeline:
        rules.pipeline(programs.pipeline)
        rules.pipeline_topics(read, written)
    return list(rules)


def _usage(message: str) -> Failure:
    return Failure("USAGE", message, "see `cordwood acl add --help`", ExitCode.USAGE)

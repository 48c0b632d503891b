"""The command line, put together: every command and its place in the help.

Imports typer and every command's signature, but no client library: a command imports its libraries when it runs.
"""

from typing import Annotated

import typer

from cordwood import __version__
from cordwood.cli.acl.add import add_rules
from cordwood.cli.acl.explain import explain_right
from cordwood.cli.acl.list import list_rules
from cordwood.cli.acl.remove import remove_rules
from cordwood.cli.audit import audit
from cordwood.cli.client.list import list_clients
from cordwood.cli.cluster.accept_loss import accept_loss
from cordwood.cli.cluster.cordon import cordon, uncordon
from cordwood.cli.cluster.drain import drain
from cordwood.cli.cluster.elect_preferred import elect_preferred
from cordwood.cli.cluster.forget import forget
from cordwood.cli.cluster.import_directory import import_directory
from cordwood.cli.cluster.leaders import cluster_leaders
from cordwood.cli.cluster.move_dir import move_dir
from cordwood.cli.cluster.reassign import reassign
from cordwood.cli.cluster.rebalance import rebalance
from cordwood.cli.cluster.status import cluster_status
from cordwood.cli.cluster.up import cluster_up
from cordwood.cli.cluster.upgrade import upgrade
from cordwood.cli.command import CordwoodGroup
from cordwood.cli.config.alter import alter as alter_config
from cordwood.cli.config.check import check_config
from cordwood.cli.config.describe import describe as describe_config
from cordwood.cli.config.list import list_settings
from cordwood.cli.consume import consume
from cordwood.cli.demo.command import demo
from cordwood.cli.doctor.command import doctor
from cordwood.cli.group.delete import delete_groups
from cordwood.cli.group.describe import describe_group
from cordwood.cli.group.lag import group_lag
from cordwood.cli.group.list import list_groups
from cordwood.cli.group.reset import reset as reset_group
from cordwood.cli.group.watch import watch_group
from cordwood.cli.history import check as check_history
from cordwood.cli.inspect.command import inspect
from cordwood.cli.pipeline.compare import compare_editions
from cordwood.cli.pipeline.forget import forget_edition
from cordwood.cli.pipeline.graph import pipeline_graph
from cordwood.cli.pipeline.list import list_pipelines
from cordwood.cli.pipeline.replay import replay as replay_pipeline
from cordwood.cli.pipeline.requeue import requeue as requeue_records
from cordwood.cli.pipeline.run import run as run_pipeline
from cordwood.cli.pipeline.serve import serve_pipelines
from cordwood.cli.pipeline.start import reload_pipeline, start_pipeline
from cordwood.cli.pipeline.status import pipeline_status
from cordwood.cli.pipeline.stop import stop_pipeline
from cordwood.cli.pipeline.swap import rollback_pipeline, swap_pipeline
from cordwood.cli.pipeline.try_out import try_out
from cordwood.cli.produce import produce
from cordwood.cli.quota.add import add_quota
from cordwood.cli.quota.describe import describe_quota
from cordwood.cli.quota.list import list_quotas
from cordwood.cli.quota.remove import remove_quota
from cordwood.cli.recover.accept_lost_directory import accept_lost_directory
from cordwood.cli.recover.list import list_set_aside
from cordwood.cli.recover.metadata import recover_metadata
from cordwood.cli.recover.put_back import put_back
from cordwood.cli.serving.command import serve
from cordwood.cli.spark.repair_checkpoint import repair_checkpoint
from cordwood.cli.support_bundle import support_bundle
from cordwood.cli.token.create import create_token
from cordwood.cli.token.expire import expire_token
from cordwood.cli.token.list import list_tokens
from cordwood.cli.token.renew import renew_token
from cordwood.cli.topic.alter import alter as alter_topic
from cordwood.cli.topic.create import create as create_topic
from cordwood.cli.topic.delete import delete as delete_topic
from cordwood.cli.topic.describe import describe_topics
from cordwood.cli.topic.list import list_topics
from cordwood.cli.topic.truncate import truncate as truncate_topic
from cordwood.cli.transaction.abort import abort_transaction
from cordwood.cli.transaction.describe import describe_transaction
from cordwood.cli.transaction.families import list_families
from cordwood.cli.transaction.forget_family import forget_family
from cordwood.cli.transaction.list import list_transactions
from cordwood.cli.user.add import add_user
from cordwood.cli.user.list import list_users
from cordwood.cli.user.password import change_password
from cordwood.cli.user.remove import remove_user

app = typer.Typer(
    name="cordwood",
    cls=CordwoodGroup,
    help="A commit log that speaks the Kafka protocol.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=True,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cordwood {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Holds the options that stand before any command."""


_topic = typer.Typer(help="Create, look at, change and delete topics.", no_args_is_help=True)
_topic.command("create")(create_topic)
_topic.command("list")(list_topics)
_topic.command("describe")(describe_topics)
_topic.command("alter")(alter_topic)
_topic.command("truncate")(truncate_topic)
_topic.command("delete")(delete_topic)

_group = typer.Typer(
    help="Consumer groups: show members, positions and lag; reset positions; delete groups.", no_args_is_help=True
)
_group.command("list")(list_groups)
_group.command("lag")(group_lag)
_group.command("describe")(describe_group)
_group.command("watch")(watch_group)
_group.command("reset")(reset_group)
_group.command("delete")(delete_groups)

_client = typer.Typer(no_args_is_help=True)


@_client.callback()
def _client_group() -> None:
    """Keeps `list` a subcommand: typer would make a group's only command the group itself."""


_client.command("list")(list_clients)

_config = typer.Typer(
    help="List, check, show and change the settings of topics, groups and brokers.", no_args_is_help=True
)
_config.command("list")(list_settings)
_config.command("describe")(describe_config)
_config.command("check")(check_config)
_config.command("alter")(alter_config)

_transaction = typer.Typer(help="Look at transactions, and end those that hang.", no_args_is_help=True)
_transaction.command("list")(list_transactions)
_transaction.command("describe")(describe_transaction)
_transaction.command("abort")(abort_transaction)
_transaction.command("families")(list_families)
_transaction.command("forget-family")(forget_family)

_pipeline = typer.Typer(
    help="Data pipelines on Spark: run them, replay history into a new version, swap it in.", no_args_is_help=True
)
_pipeline.command("run")(run_pipeline)
_pipeline.command("serve")(serve_pipelines)
_pipeline.command("start")(start_pipeline)
_pipeline.command("reload")(reload_pipeline)
_pipeline.command("status")(pipeline_status)
_pipeline.command("stop")(stop_pipeline)
_pipeline.command("list")(list_pipelines)
_pipeline.command("graph")(pipeline_graph)
_pipeline.command("replay")(replay_pipeline)
_pipeline.command("compare")(compare_editions)
_pipeline.command("swap")(swap_pipeline)
_pipeline.command("rollback")(rollback_pipeline)
_pipeline.command("requeue")(requeue_records)
_pipeline.command("try")(try_out)
_pipeline.command("forget")(forget_edition)

_user = typer.Typer(
    help="Users of listeners with SASL: add, list and remove them, change a password.", no_args_is_help=True
)
_user.command("add")(add_user)
_user.command("list")(list_users)
_user.command("password")(change_password)
_user.command("remove")(remove_user)

_acl = typer.Typer(
    help="Rights: add, list and remove rules, and explain which one decides. For brokers with authorizer.class.name.",
    no_args_is_help=True,
)
_acl.command("add")(add_rules)
_acl.command("list")(list_rules)
_acl.command("remove")(remove_rules)
_acl.command("explain")(explain_right)

_quota = typer.Typer(
    help="Quotas of users, client ids and addresses: add, list and remove them, and show which ones hold.",
    no_args_is_help=True,
)
_quota.command("add")(add_quota)
_quota.command("list")(list_quotas)
_quota.command("describe")(describe_quota)
_quota.command("remove")(remove_quota)

_token = typer.Typer(
    help="Delegation tokens: create, list, renew and expire them. For brokers with delegation.token.secret.key.file.",
    no_args_is_help=True,
)
_token.command("create")(create_token)
_token.command("list")(list_tokens)
_token.command("renew")(renew_token)
_token.command("expire")(expire_token)

_recover = typer.Typer(
    help="Repair damaged metadata, and put back partitions that a start set aside. For a stopped broker.",
    no_args_is_help=True,
)
_recover.command("list")(list_set_aside)
_recover.command("put-back")(put_back)
_recover.command("metadata")(recover_metadata)
_recover.command("accept-lost-directory")(accept_lost_directory)

_spark = typer.Typer(no_args_is_help=True)


@_spark.callback()
def _spark_group() -> None:
    """Keeps `repair-checkpoint` a subcommand: typer would make a group's only command the group itself."""


_spark.command("repair-checkpoint")(repair_checkpoint)

_cluster = typer.Typer(help="Run a cluster on this machine; look at a cluster, and change it.", no_args_is_help=True)

_cluster.command("up")(cluster_up)
_cluster.command("status")(cluster_status)
_cluster.command("leaders")(cluster_leaders)
_cluster.command("import")(import_directory)
_cluster.command("drain")(drain)
_cluster.command("cordon")(cordon)
_cluster.command("uncordon")(uncordon)
_cluster.command("rebalance")(rebalance)
_cluster.command("reassign")(reassign)
_cluster.command("move-dir")(move_dir)
_cluster.command("elect-preferred")(elect_preferred)
_cluster.command("accept-loss")(accept_loss)
_cluster.command("forget")(forget)
_cluster.command("upgrade")(upgrade)

app.command("serve")(serve)
app.add_typer(_cluster, name="cluster")
app.command("demo")(demo)
app.add_typer(_topic, name="topic")
app.command("produce")(produce)
app.command("consume")(consume)
app.add_typer(_group, name="group")
app.add_typer(_client, name="client", help="Show which clients use the brokers, and which one floods them.")
app.add_typer(_config, name="config")
app.add_typer(_transaction, name="transaction")
app.add_typer(_user, name="user")
app.add_typer(_acl, name="acl")
app.add_typer(_quota, name="quota")
app.add_typer(_token, name="token")
app.add_typer(_pipeline, name="pipeline")
app.add_typer(_spark, name="spark", help="Repair the checkpoints of Spark queries after a power cut.")
app.command("inspect")(inspect)
app.add_typer(_recover, name="recover")
app.command("audit")(audit)
app.command("doctor")(doctor)
app.command("support-bundle")(support_bundle)

_history = typer.Typer(
    help="Check what clients wrote and read: lost, changed, duplicated, reordered records.", no_args_is_help=True
)


@_history.callback()
def _history_group() -> None:
    """Keeps `check` a subcommand: typer would make a group's only command the group itself."""


_history.command("check")(check_history)
app.add_typer(
    _history, name="history", help="Check what clients wrote and read: lost, changed, duplicated, reordered records."
)

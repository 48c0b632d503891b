"""`cordwood serve` from its arguments to its settings, without the libraries that only other commands need."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from cordwood.cli.app import app
from cordwood.cli.reference import commands
from cordwood.cli.serving.start import Flags, overridden_directories, plain_serve_flags, settings_from
from cordwood.model.failure import ExitCode, Failure


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        (["serve"], Flags()),
        (["serve", "--data-dir", "d", "--listen", "h:1"], Flags("d", "h:1")),
        (["serve", "--data-dir=d", "-l", "h:1", "-c", "f"], Flags("d", "h:1", "f")),
        (["serve", "--log-format", "json", "--log-file=f"], Flags(log_format="json", log_file="f")),
        (["serve", "--set", "a=b", "--set=c=d=e", "-s", "f="], Flags(assignments=("a=b", "c=d=e", "f="))),
    ],
)
def test_plain_serve_arguments_need_no_typer(arguments: list[str], flags: Flags) -> None:
    assert plain_serve_flags(arguments) == flags


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["topic", "list"],
        ["serve", "--help"],
        ["serve", "extra"],
        ["serve", "--listen"],
        ["serve", "--listen", "--set"],
        ["serve", "--unknown", "x"],
        ["servee"],
        ["--data-dir", "d"],
    ],
)
def test_everything_else_is_left_to_typer(arguments: list[str]) -> None:
    assert plain_serve_flags(arguments) is None


def test_the_quick_way_knows_every_option_of_a_single_broker_that_typer_knows() -> None:
    serve = dict(commands(app))["cordwood serve"]
    of_workers = {"workers", "as_json"}
    for name in inspect.signature(serve).parameters.keys() - of_workers:
        info = get_args(get_type_hints(serve, include_extras=True)[name])[1]
        for option in (info.default, *info.param_decls):
            value = [] if name == "secure" else ["a=b"]
            assert plain_serve_flags(["serve", option, *value]) is not None, option


def test_flags_stand_above_the_environment_and_the_environment_above_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("num.partitions = 2\nnode.id = 7\n[log]\nretention.ms = 1000\n")
    environment = {"CORDWOOD_NUM_PARTITIONS": "3", "CORDWOOD_LOG_RETENTION_MS": "2000", "CORDWOOD_DATA_DIR": "env"}
    settings = settings_from(Flags(config=str(file), assignments=("num.partitions=4",)), environment)
    assert settings.num_partitions == 4
    assert settings.topic_settings.retention_ms == 2000
    assert settings.node_id == 7
    assert settings.data_directories == ("env",)
    assert settings_from(Flags(data_dir="flag"), environment).data_directories == ("flag",)


@pytest.mark.parametrize("flags", [{"data_dir": "/b"}, {"assignments": ("log.dirs=/b",)}])
def test_a_broker_says_when_its_directories_are_not_those_of_its_file(tmp_path: Path, flags: dict[str, Any]) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('log.dirs = "/a"\n')
    given = Flags(config=str(file), **flags)
    said = overridden_directories(given, {}, settings_from(given, {}))
    assert said == f"{file} sets log.dirs to /a; flags or the environment override it with /b"
    alone = Flags(config=str(file))
    assert overridden_directories(alone, {}, settings_from(alone, {})) == ""
    assert overridden_directories(Flags(data_dir="/b"), {}, settings_from(Flags(data_dir="/b"), {})) == ""


def test_all_mistakes_of_a_file_are_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("num.partitions = 0\nno.such.thing = 1\n")
    with pytest.raises(Failure, match="2 mistakes in the settings:") as caught:
        settings_from(Flags(config=str(file)), {})
    assert "num.partitions" in caught.value.message
    assert "no.such.thing" in caught.value.message


def test_set_is_the_most_particular_flag() -> None:
    settings = settings_from(Flags(data_dir="flag", assignments=("log.dirs=set",)), {})
    assert settings.data_directories == ("set",)


def test_the_variables_of_other_commands_are_no_settings() -> None:
    variables = {
        str(info.envvar)
        for _, command in commands(app)
        for hint in get_type_hints(command, include_extras=True).values()
        for info in get_args(hint)[1:]
        if getattr(info, "envvar", None) is not None
    }
    assert {"CORDWOOD_BOOTSTRAP", "CORDWOOD_PIPELINES"} <= variables
    others = dict.fromkeys(variables - {"CORDWOOD_CONFIG", "CORDWOOD_DATA_DIR", "CORDWOOD_LISTEN"}, "localhost:1")
    assert settings_from(Flags(), others).node_id == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (Flags(assignments=("no.such.thing=1",)), "no.such.thing"),
        (Flags(assignments=("num.partitions=0",)), "num.partitions"),
        (Flags(listen="nowhere"), "listeners"),
    ],
)
def test_a_setting_that_is_none_is_a_usage_error_that_names_it(flags: Flags, said: str) -> None:
    with pytest.raises(Failure, match=said) as caught:
        settings_from(flags, {})
    assert caught.value.exit_code is ExitCode.USAGE


def test_starting_a_broker_imports_no_client_and_no_terminal_library(tmp_path: Path) -> None:
    # The settings are refused, so that the process ends by itself after everything that precedes serving.
    program = (
        "import sys\n"
        "from cordwood.cli import main\n"
        f"sys.argv = ['cordwood', 'serve', '--data-dir', {str(tmp_path)!r}, '--set', 'num.partitions=0']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as ended:\n"
        "    print(ended.code, sorted({'typer', 'click', 'rich', 'confluent_kafka', 'argparse'} & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "2 []"

"""Commands against a real broker. They run in this process, which is where most of a command's time would go."""

import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from tests.conftest import RunningBroker
from typer.testing import CliRunner, Result

from cordwood.cli.app import app
from cordwood.model.failure import ExitCode


class Cordwood:
    """`cordwood`, pointed at the broker by the environment as a person would."""

    def __init__(self, bootstrap: str, environment: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self._runner = CliRunner(env={"CORDWOOD_BOOTSTRAP": bootstrap, **(environment or {})})

    def run(self, *arguments: object, stdin: str | bytes | None = None) -> Result:
        """The result of a command, whatever it is."""
        return self._runner.invoke(app, [str(argument) for argument in arguments], input=stdin)

    def __call__(self, *arguments: object, stdin: str | bytes | None = None) -> str:
        """The output of a command that succeeds."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == ExitCode.DONE, (
            f"{arguments}: {result.exit_code}\n{result.output}\n{result.exception}"
        )
        return result.stdout

    def json(self, *arguments: object, stdin: str | bytes | None = None) -> Any:
        return json.loads(self(*arguments, "--json", stdin=stdin))

    def json_lines(self, *arguments: object) -> list[Any]:
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]

    def error(self, *arguments: object, stdin: str | bytes | None = None) -> tuple[int, dict[str, str]]:
        """The exit code and the error of a command that fails, as a script sees them."""
        result = self.run(*arguments, "--json", stdin=stdin)
        assert result.exit_code != ExitCode.DONE, result.stdout
        error: dict[str, str] = json.loads(result.stderr)["error"]
        assert set(error) == {"code", "message", "hint"}
        return result.exit_code, error


@pytest.fixture
def cordwood_cli(broker: RunningBroker) -> Cordwood:
    return Cordwood(broker.bootstrap)


@pytest.fixture
def topic(cordwood_cli: Cordwood) -> str:
    """The name of a topic that does not exist yet."""
    return f"cli-{uuid.uuid4().hex[:10]}"

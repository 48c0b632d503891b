"""The fixtures `cordwood` and `cordwood_cluster`: a fresh broker, or three, in memory for each test that asks for it.

Each test has a broker of its own: a broker starts in tens of milliseconds, and tests that share no broker share no
topics and offsets. A suite that wants one broker for all tests writes a session fixture around `Broker`. pytest imports
this module at every start of every suite on the machine, so the module imports nothing else.

The fixtures `cordwood_spark` and `pipeline_test` are for tests of pipelines: one Spark for all tests of a process, and
a pipeline that runs on it by hand.

The broker's settings come from three places, and a later one overrides an earlier one: `cordwood_settings` in the ini
file, the fixture `cordwood_settings`, and the markers `cordwood` from the outermost to the nearest. The markers also
say whether the broker is secure, and which users it has.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cordwood.embedded.broker import Broker
    from cordwood.embedded.cluster import Cluster
    from cordwood.pipelines import Pipeline
    from cordwood.pipelines.testing import PipelineTest

Settings = Mapping[str, str | int | float | bool]

_MARKER = "cordwood"
_INI_OPTION = "cordwood_settings"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_INI_OPTION, "Settings of the `cordwood` fixture's broker: one NAME=VALUE on each line.", "linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(settings, secure=False, users={{}}): settings by name for this test's broker; whether it has "
        "TLS, log-ins and rights; and passwords of its users.",
    )


@pytest.fixture
def cordwood_settings(pytestconfig: pytest.Config) -> Settings:
    """The settings of the `cordwood` broker by name, from the ini file. A suite can override this fixture."""
    settings: dict[str, str | int | float | bool] = {}
    for line in pytestconfig.getini(_INI_OPTION):
        name, equals, text = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{_INI_OPTION}: {line!r} is not NAME=VALUE")
        settings[name.strip()] = text.strip()
    return settings


@pytest.fixture
def cordwood(request: pytest.FixtureRequest, cordwood_settings: Settings) -> "Iterator[Broker]":
    """A Kafka-compatible broker: clients use `cordwood.client_settings()`; `cordwood.log` needs no client."""
    from cordwood.embedded.broker import Broker

    with Broker(**_arguments(request, cordwood_settings)) as broker:
        yield broker


@pytest.fixture
def cordwood_cluster(request: pytest.FixtureRequest, cordwood_settings: Settings) -> "Iterator[Cluster]":
    """Three brokers that are one cluster: `cordwood_cluster.leader(topic, partition).kill()` kills a leader."""
    from cordwood.embedded.cluster import Cluster

    with Cluster(**_arguments(request, cordwood_settings)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cordwood_spark() -> "Iterator[SparkSession]":
    """The Spark of all tests of this process, local and with two cores. A suite can override this fixture."""
    from cordwood.pipelines.testing.spark import testing_session

    with testing_session() as spark:
        yield spark


@pytest.fixture
def pipeline_test(
    cordwood: "Broker", cordwood_spark: "SparkSession", tmp_path: Path
) -> "Callable[[Pipeline], PipelineTest]":
    """Makes a pipeline ready for tests: `orders = pipeline_test(price_orders)`, on the test's own broker."""
    from cordwood.pipelines.testing import PipelineTest

    def make(pipeline: "Pipeline") -> "PipelineTest":
        directory = tmp_path / "pipelines" / pipeline.name
        return PipelineTest(pipeline, cordwood_spark, cordwood.client_settings(), directory)

    return make


class _Arguments(TypedDict):
    settings: Settings
    secure: bool
    users: Mapping[str, str]


def _arguments(request: pytest.FixtureRequest, settings: Settings) -> _Arguments:
    """The arguments of a broker or a cluster for one test."""
    found = dict(settings)
    secure = False
    users: dict[str, str] = {}
    for marker in reversed(list(request.node.iter_markers(_MARKER))):
        for given in marker.args:
            found.update(given)
        if unknown := sorted(marker.kwargs.keys() - {"secure", "users"}):
            raise pytest.UsageError(f"the marker {_MARKER} takes settings, secure= and users=, and no {unknown[0]}=")
        secure = marker.kwargs.get("secure", secure)
        users.update(marker.kwargs.get("users", {}))
    return {"settings": found, "secure": secure, "users": users}

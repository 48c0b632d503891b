"""Pipelines over SASL_SSL, by a user who has only the rights that `cordwood acl add --pipeline` gives."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from tests.certificates import tls_files
from tests.cli.conftest import Cordwood
from tests.spark.secure_stage import SecureStage, settings_in

from cordwood.model.failure import ExitCode

FILE = """
from cordwood.pipelines import budget, json, pipeline, table, topic

@pipeline(
    "{name}",
    version={version},
    inputs=topic("orders", value=json("id string not null, amount double")),
    outputs={{"priced": topic("{name}.priced", key="id"), "orders": table("{name}_orders", key="id")}},
    quarantine=budget(rows=10),
    spark={{"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.memory": "512m"}},
)
def price(orders):
    priced = orders.selectExpr("id", "amount * {version} as total", "_record")
    return {{"priced": priced, "orders": priced}}
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureStage]:
    stage = SecureStage(tmp_path_factory.mktemp("secure"))
    try:
        stage.make_topics("orders")
        stage.produce("orders", [order(number) for number in range(10)] + ["nonsense"])
        yield stage
    finally:
        stage.end()


def order(number: int) -> str:
    return json.dumps({"id": f"o{number}", "amount": number})


class Pipeline:
    """A pipeline of a user of its own."""

    def __init__(self, stage: SecureStage, directory: Path, name: str) -> None:
        self.name = name
        self.directory = directory
        rights = ("--pipeline", name, "--reads", "orders", "--writes", f"{name}.priced")
        self.client_config = stage.add_user(name, *rights)
        self.password = settings_in(self.client_config)["sasl.password"]
        self.cli = Cordwood(
            "", {"CORDWOOD_CLIENT_CONFIG": str(self.client_config), "CORDWOOD_PIPELINES": str(directory / "state")}
        )
        (directory / "files").mkdir()
        self.file = directory / "files" / f"{name}.py"
        self.version(1)

    def version(self, number: int) -> None:
        self.file.write_text(FILE.format(name=self.name, version=number))


@contextmanager
def nobody_sees(secret: str) -> Iterator[None]:
    """Watches the arguments of all processes while the block runs."""
    seen: list[str] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    arguments = path.read_bytes().decode(errors="replace")
                except OSError:
                    continue  # the process has ended
                if secret in arguments:
                    seen.append(arguments)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    assert not seen


def test_a_pipeline_runs_is_replayed_and_swapped_and_keeps_no_password(stage: SecureStage, tmp_path: Path) -> None:
    pipeline = Pipeline(stage, tmp_path, "price")
    cli, totals = pipeline.cli, [json.dumps({"id": f"o{number}", "total": float(number)}) for number in range(10)]
    with nobody_sees(pipeline.password):
        events = cli.json_lines("pipeline", "run", pipeline.file, "--once")
        (batch,) = [event for event in events if event["event"] == "batch"]
        assert (batch["rows_in"], batch["quarantined"]) == (11, 1)
        assert sorted(map(json.loads, stage.committed("price.priced", 100)), key=str) == sorted(
            map(json.loads, totals), key=str
        )
        pipeline.version(2)
        cli("pipeline", "replay", pipeline.file)
        assert cli.run("pipeline", "compare", "price", "--exit-code").exit_code == ExitCode.PROBLEM_FOUND
        cli("pipeline", "swap", "price")
        assert len(stage.committed("price.priced.v2", 100)) == 10
        requeued = cli.run("pipeline", "requeue", pipeline.file, "--json")
        assert requeued.exit_code == ExitCode.PROBLEM_FOUND, requeued.output
        assert json.loads(requeued.stdout)["failed_again"] == 1
    editions = {each["edition"]: each for each in cli.json("pipeline", "status", "price")["editions"]}
    assert editions["v2"]["lag"] == 0
    groups = {group["name"] for group in stage.cli.json("group", "list")}
    assert "spark-price.v2" in groups
    kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if pipeline.password.encode() in path.read_bytes()]


def test_pipelines_of_a_directory_are_served(stage: SecureStage, tmp_path: Path) -> None:
    pipeline = Pipeline(stage, tmp_path, "served")
    with nobody_sees(pipeline.password):
        pipeline.cli("pipeline", "serve", pipeline.file.parent, "--once", "--max-restarts", "0")
    assert len(stage.committed("served.priced", 100)) >= 10
    kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert not [path for path in kept if pipeline.password.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("name", "kind", "operations", "said"),
    [
        ("unseen", ResourceType.TOPIC, {AclOperation.READ, AclOperation.DESCRIBE}, "Describe of the topic"),
        ("unset", ResourceType.TOPIC, {AclOperation.DESCRIBE_CONFIGS}, "DescribeConfigs of the topic"),
        ("unmade", ResourceType.TOPIC, {AclOperation.CREATE}, "Create of the topic"),
        ("unlisted", ResourceType.TRANSACTIONAL_ID, {AclOperation.WRITE}, "Write of the transactional id"),
    ],
)
def test_without_one_of_the_rights_a_run_fails_and_names_it(
    stage: SecureStage, tmp_path: Path, name: str, kind: ResourceType, operations: set[AclOperation], said: str
) -> None:
    pipeline = Pipeline(stage, tmp_path, name)
    stage.take([rule for rule in stage.rules_of(name) if rule.restype == kind and rule.operation in operations])
    result = pipeline.cli.run("pipeline", "run", pipeline.file, "--once", "--max-restarts", "0")
    assert result.exit_code != ExitCode.DONE
    assert said in result.stderr
    assert pipeline.password not in result.output


def test_a_client_that_is_not_let_in_learns_why_before_spark_is_started(stage: SecureStage, tmp_path: Path) -> None:
    pipeline = Pipeline(stage, tmp_path, "stranger")
    settings = settings_in(pipeline.client_config)
    wrong = tmp_path / "wrong.properties"
    for change, said in (
        ({"sasl.password": "not his"}, "SASL_AUTHENTICATION_FAILED"),
        ({"ssl.ca.location": str(tls_files(tmp_path).truststore)}, "certificate"),
    ):
        wrong.write_text("".join(f"{name}={value}\n" for name, value in {**settings, **change}.items()))
        for command in (("pipeline", "run", pipeline.file), ("pipeline", "try", pipeline.file), ("audit", "orders")):
            _, error = pipeline.cli.error(*command, "--client-config", wrong)
            told = json.dumps(error)
            assert said in told
            assert "not his" not in told
    assert not (tmp_path / "state/stranger").exists()


def test_an_audit(stage: SecureStage, tmp_path: Path) -> None:
    pipeline = Pipeline(stage, tmp_path, "auditor")
    report = pipeline.cli.json("audit", "orders", "--master", "local[2]")
    assert report["records"] >= 11

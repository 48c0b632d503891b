"""Clients of other languages, and Kafka's own tools, with what people use of them most."""

from pathlib import Path

from tests.interop_software.software import FRANZ_GO, go_program, kafka_core_command, kafkajs_modules
from tests.interop_software.stage import Stage, check_lines

HERE = Path(__file__).parent


def kafkajs(stage: Stage) -> None:
    modules = kafkajs_modules()
    broker = stage.broker()
    check_lines(stage.run(["node", str(HERE / "js/kafkajs_story.js"), broker.bootstrap, str(modules)]), 4)


def franz_go(stage: Stage) -> None:
    program = go_program(HERE / "go/franz_go_story.go", "github.com/twmb/franz-go", FRANZ_GO, stage.path / "go")
    broker = stage.broker()
    check_lines(stage.run([str(program), broker.bootstrap]), 3)


def franz_go_with_its_rules_alone(stage: Stage) -> None:
    """By SCRAM over TLS, as a user that may do what the story does, and no more."""
    program = go_program(HERE / "go/franz_go_story.go", "github.com/twmb/franz-go", FRANZ_GO, stage.path / "go")
    broker = stage.secure_broker()
    user = broker.user("gopher", "--producer", "--prefixed", "--topic", "franz-go-", "--transactional-id", "franz-go-")
    rules = ("--consumer", "--prefixed", "--topic", "franz-go-", "--group", "franz-go-")
    broker.cordwood("acl", "add", "gopher", *rules)
    log_in = [user.security[name] for name in ("sasl.username", "sasl.password", "sasl.mechanism", "ssl.ca.location")]
    check_lines(stage.run([str(program), broker.bootstrap, *log_in]), 3)


def kafka_tools(stage: Stage) -> None:
    """Settings of groups and levels of loggers, with kafka-configs."""
    broker = stage.broker()

    def configs(*arguments: str) -> str:
        return stage.run(
            kafka_core_command("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments)
        )

    group = ("--entity-type", "groups", "--entity-name", "readers")
    configs("--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in configs("--describe", *group)
    logger = ("--entity-type", "broker-loggers", "--entity-name", "1")
    configs("--alter", *logger, "--add-config", "cordwood.broker=DEBUG")
    assert "cordwood.broker=DEBUG" in configs("--describe", *logger)
    configs("--alter", *logger, "--delete-config", "cordwood.broker")
    assert "cordwood.broker=INFO" in configs("--describe", *logger)

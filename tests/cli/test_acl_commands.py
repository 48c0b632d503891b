"""`cordwood acl` against a real broker that asks for rights."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Cordwood
from tests.raw_client import RawClient

from cordwood.embedded import Broker
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER
from cordwood.wire.apis import ApiKey

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
    "listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0",
    "super.users": "User:ANONYMOUS;User:root",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def cli(broker: Broker) -> Iterator[Cordwood]:
    cli = Cordwood(broker.bootstrap_servers)
    yield cli
    for rule in cli.json("acl", "list"):
        cli.run("acl", "remove", "--principal", rule["principal"], "--yes")
    assert cli.json("acl", "list") == []


def rule(operation: str = "Read", name: str = "orders", **more: str) -> dict[str, str]:
    return {
        "principal": "User:alice",
        "host": "*",
        "permission": "allow",
        "operation": operation,
        "resource": "topic",
        "name": name,
        "pattern": "literal",
        **more,
    }


def test_names_of_rules_do_not_steer_the_terminal(cli: Cordwood, broker: Broker) -> None:
    names = ("g\x1b[2J\x9b1m\x7f", "User:al\x1b]0;ice\x07")
    rule = {"resource_type": 3, "resource_pattern_type": 3, "host": "*", "operation": 3, "permission_type": 3}
    client = RawClient(broker.bootstrap_servers)
    made = client.send(ApiKey.CREATE_ACLS, 3, creations=[{**rule, "resource_name": names[0], "principal": names[1]}])
    client.close()
    assert made.results[0].error_code == 0
    shown = r"g\x1b[2J\x9b1m\x7f", r"User:al\x1b]0;ice\x07"
    told = [
        cli("acl", "list"),
        cli("acl", "remove", "--principal", names[1], "--dry-run"),
        cli("acl", "explain", names[1], "Read", "--group", names[0]),
    ]
    for text in told:
        assert all(name in text for name in shown), text
        assert not set(text) & set("\x1b\x07\x7f\x9b")
    as_json = cli("acl", "list", "--json")
    assert (json.loads(as_json)[0]["name"], json.loads(as_json)[0]["principal"]) == names
    assert not set(as_json) & set("\x1b\x07\x7f\x9b")


def test_a_rule_is_added_listed_and_removed(cli: Cordwood) -> None:
    add = ("acl", "add", "alice", "--operation", "read", "--topic", "orders")
    assert cli.json(*add, "--dry-run") == {"rules": [rule()], "dry_run": True}
    assert cli.json("acl", "list") == []
    assert cli(*add) == "allow User:alice: Read on topic 'orders'\n"
    assert cli(*add) == "allow User:alice: Read on topic 'orders'\n"
    assert cli.json("acl", "list") == [rule()]
    assert cli("acl", "list").splitlines()[1] == "User:alice\t*\tallow\tRead\ttopic\tliteral\torders"
    remove = ("acl", "remove", "--principal", "alice", "--topic", "orders")
    assert cli.json(*remove, "--dry-run") == {"removed": [], "dry_run": True}
    assert cli.error(*remove)[1]["hint"] == "add --yes"
    assert cli.json(*remove, "--yes") == {"removed": [rule()]}
    assert cli.json("acl", "list") == []


def test_rules_are_found_by_the_resource_that_they_cover(cli: Cordwood) -> None:
    cli("acl", "add", "alice", "-o", "Read", "--topic", "ord", "--prefixed")
    cli("acl", "add", "User:bob", "-o", "All", "--topic", "*", "--host", "10.0.0.1")
    cli("acl", "add", "carol", "-o", "Read", "--topic", "orders", "--deny")
    cli("acl", "add", "carol", "-o", "Alter", "-o", "Describe", "--cluster")
    names = [each["name"] for each in cli.json("acl", "list", "--topic", "orders")]
    assert names == ["*", "orders", "ord"]
    assert [each["name"] for each in cli.json("acl", "list", "--topic", "orders", "--exactly")] == ["orders"]
    assert [each["permission"] for each in cli.json("acl", "list", "--deny")] == ["deny"]
    assert [each["operation"] for each in cli.json("acl", "list", "--cluster")] == ["Alter", "Describe"]
    assert [each["principal"] for each in cli.json("acl", "list", "--host", "10.0.0.1")] == ["User:bob"]


def test_explain_names_the_rule_that_decides(cli: Cordwood) -> None:
    def explained(*question: str) -> tuple[bool, str, str | None]:
        told = cli.json("acl", "explain", *question)
        return told["allowed"], told["why"], told["rule"] and told["rule"]["permission"]

    question = ("alice", "Read", "--topic", "orders")
    assert explained(*question) == (False, "no rule allows it", None)
    cli("acl", "add", "alice", "-o", "Read", "--topic", "ord", "--prefixed")
    assert explained(*question) == (True, "a rule allows it", "allow")
    assert explained("alice", "Describe", "--topic", "orders") == (True, "a rule allows it", "allow")
    cli("acl", "add", "alice", "-o", "Read", "--topic", "orders", "--deny", "--host", "10.0.0.1")
    assert explained(*question) == (True, "a rule allows it", "allow")
    assert explained(*question, "--host", "10.0.0.1") == (False, "a rule denies it", "deny")
    assert explained("root", "Alter", "--cluster")[0]
    cli("acl", "add", "Group:traders", "--operation", "Write", "--topic", "orders")
    assert not explained("bob", "Write", "--topic", "orders")[0]
    assert explained("bob", "Write", "--topic", "orders", "--member-of", "traders")[0]
    assert cli("acl", "explain", *question).splitlines() == [
        "User:alice at 127.0.0.1 may: Read of the topic 'orders'",
        "  why: a rule allows it",
        "  rule: allow User:alice: Read on topic whose name begins with 'ord'",
    ]


@pytest.mark.parametrize(
    ("arguments", "rules"),
    [
        (("--producer", "--topic", "orders"), ["Create orders", "Describe orders", "Write orders"]),
        (
            ("--producer", "--topic", "orders", "--transactional-id", "shop"),
            ["Create orders", "Describe orders", "Describe shop", "Write orders", "Write shop"],
        ),
        (
            ("--consumer", "--topic", "orders", "--group", "shop"),
            ["Describe orders", "Describe shop", "Read orders", "Read shop"],
        ),
        (
            ("--streams", "app", "--reads", "orders"),
            ["All app-", "Describe app", "Describe app-", "Describe orders", "Read app", "Read orders", "Write app-"],
        ),
    ],
)
def test_a_program_gets_all_that_it_needs(cli: Cordwood, arguments: tuple[str, ...], rules: list[str]) -> None:
    cli("acl", "add", "alice", *arguments)
    assert sorted(f"{each['operation']} {each['name']}" for each in cli.json("acl", "list")) == rules


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "alice"), "an operation and a resource are needed, or a program"),
        (("add", "alice", "-o", "Raed", "--topic", "t"), "'Raed' is no operation"),
        (("add", "alice", "-o", "Write", "--group", "g"), "does not apply to a group"),
        (("add", "alice", "-o", "Write", "--topic", "t", "--reads", "t"), "--reads and --writes go with"),
        (("add", "alice", "--producer"), "needs --topic"),
        (("add", "alice", "--consumer", "--topic", "t"), "needs --group"),
        (("add", "alice", "--producer", "--topic", "t", "--deny"), "a program needs fixed rights"),
        (("remove", "--yes"), "all rules would be removed"),
        (("list", "--topic", "t", "--group", "g"), "several resources"),
        (("explain", "alice", "Read"), "a resource is needed"),
        (("explain", "alice", "Write", "--group", "g"), "nobody asks for Write of a group"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(cli: Cordwood, arguments: tuple[str, ...], message: str) -> None:
    code, error = cli.error("acl", *arguments)
    assert code == 2
    assert message in error["message"]


def test_a_rule_that_does_not_exist_cannot_be_removed(cli: Cordwood) -> None:
    code, error = cli.error("acl", "remove", "--topic", "nothing", "--yes")
    assert (code, error["message"]) == (4, "there is no such rule")


def test_without_an_authorizer_nothing_is_refused() -> None:
    with Broker() as broker:
        cli = Cordwood(broker.bootstrap_servers)
        told = cli.json("acl", "explain", "alice", "Read", "--topic", "t")
        assert told["allowed"]
        assert "authorizer.class.name is not set" in told["why"]
        assert cli.error("acl", "list")[1]["code"] == "SECURITY_DISABLED"


def test_a_client_with_settings_logs_in(
    broker: Broker, cli: Cordwood, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORDWOOD_USER_PASSWORD", "secret")
    cli("user", "add", "root")
    file = tmp_path / "root.properties"
    lines = [
        "# an operator",
        f"bootstrap.servers={broker.listeners['USERS']}",
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=SCRAM-SHA-512",
        "sasl.username=root",
        "sasl.password=secret",
    ]
    file.write_text("\n".join(lines))
    monkeypatch.setenv("CORDWOOD_CLIENT_CONFIG", str(file))
    logged_in = Cordwood("")
    logged_in("acl", "add", "alice", "-o", "Read", "--topic", "orders")
    assert logged_in.json("acl", "list") == [rule()]
    file.write_text("\n".join([*lines[:-1], "sasl.password=wrong"]))
    code, error = logged_in.error("acl", "list")
    assert (code, error["code"]) == (3, "SASL_AUTHENTICATION_FAILED")
    for content, message in [("nonsense", "line 1: not name=value"), ("sasl.jaas.config=x", "a setting of Java's")]:
        file.write_text(content)
        code, error = logged_in.error("acl", "list")
        assert code == 2
        assert message in error["message"]
    assert logged_in.error("acl", "list", "--client-config", tmp_path / "no")[0] == 4


def test_commands_without_a_right_name_it_at_once(
    broker: Broker, cli: Cordwood, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORDWOOD_USER_PASSWORD", "secret")
    cli("user", "add", "bob")
    cli("topic", "create", "read-only")
    cli("produce", "read-only", "a", "b")
    cli("acl", "add", "bob", "-o", "Read", "--topic", "read-only")
    file = tmp_path / "bob.properties"
    file.write_text(
        f"bootstrap.servers={broker.listeners['USERS']}\nsecurity.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=SCRAM-SHA-512\nsasl.username=bob\nsasl.password=secret\n"
    )
    bob = Cordwood("", {"CORDWOOD_BOOTSTRAP": "", "CORDWOOD_CLIENT_CONFIG": str(file)})
    assert bob("consume", "read-only") == "a\nb\n"
    assert bob("consume", "read-only", "--from", "-1") == "b\n"
    code, error = bob.error("produce", "read-only", "c")
    assert (code, error["code"]) == (1, "CLUSTER_AUTHORIZATION_FAILED")
    assert "acl add USER --producer --topic read-only" in error["hint"]
    code, error = bob.error("produce", "read-only", "c", "--acks", "1")
    assert (code, error["code"]) == (1, "TOPIC_AUTHORIZATION_FAILED")
    code, error = bob.error("consume", "read-only", "--group", "shop")
    assert (code, error["code"]) == (1, "GROUP_AUTHORIZATION_FAILED")
    assert "cordwood acl explain USER OPERATION --group NAME" in error["hint"]
    with file.open("a") as more:
        more.write("sasl.tokenauth=true\n")
    code, error = bob.error("topic", "list")
    assert (code, error["code"]) == (2, "INVALID_CONFIG")
    assert "in by a delegation token" in error["message"]

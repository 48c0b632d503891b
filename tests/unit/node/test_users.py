"""Users are made, described and removed by the requests of Kafka's tools; no answer has a key."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import error
from tests.unit.node.two_brokers import write

from cordwood.cluster.stores.interface import Put
from cordwood.model.credentials import ScramMechanism, shape_of
from cordwood.security.scram import make_keys, salted_password
from cordwood.wire.apis import ApiKey

SHA_256, SHA_512 = ScramMechanism
SALT = b"0123456789abcdef"


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1).start()
    yield world
    world.kill()


def upsertion(name: str = "alice", mechanism: int = SHA_256, iterations: int = 4096, **changed: Any) -> dict[str, Any]:
    salted = salted_password(mechanism if isinstance(mechanism, ScramMechanism) else SHA_256, "secret", SALT, 4096)
    fields = {"name": name, "mechanism": int(mechanism), "iterations": iterations}
    return {**fields, "salt": SALT, "salted_password": salted, **changed}


def alter(
    world: World, *upsertions: dict[str, Any], delete: tuple[tuple[str, int], ...] = ()
) -> dict[str, tuple[str, str]]:
    deletions = [{"name": name, "mechanism": mechanism} for name, mechanism in delete]
    answer = world.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=deletions, upsertions=list(upsertions))
    return {each.user: (error(each.error_code), each.error_message or "") for each in answer.results}


def describe(world: World, *names: str) -> dict[str, tuple[str, list[tuple[int, int]]]]:
    users = [{"name": name} for name in names] or None
    answer = world.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)
    assert error(answer.error_code) == "NONE"
    return {
        each.user: (
            error(each.error_code),
            [(info.mechanism, info.iterations) for info in each.credential_infos],
        )
        for each in answer.results
    }


def test_a_user_is_made_described_and_removed_and_survives_a_restart(world: World) -> None:
    assert describe(world) == {}
    assert alter(world, upsertion(), upsertion(mechanism=SHA_512), upsertion("bob")) == {
        "alice": ("NONE", ""),
        "bob": ("NONE", ""),
    }
    world.kill()
    world.start()
    assert describe(world) == {"alice": ("NONE", [(1, 4096), (2, 4096)]), "bob": ("NONE", [(1, 4096)])}
    assert describe(world, "bob") == {"bob": ("NONE", [(1, 4096)])}
    assert alter(world, delete=(("alice", 1), ("bob", 1))) == {"alice": ("NONE", ""), "bob": ("NONE", "")}
    assert describe(world) == {"alice": ("NONE", [(2, 4096)])}
    assert describe(world, "bob") == {"bob": ("RESOURCE_NOT_FOUND", [])}


def test_the_store_has_keys_by_which_the_password_proves_itself_and_no_password(world: World) -> None:
    alter(world, upsertion())
    row = world.node.image.users.rows["alice"]
    assert row.keys == {SHA_256: make_keys(SHA_256, "secret", SALT, 4096)}
    salted = salted_password(SHA_256, "secret", SALT, 4096)
    assert salted not in (row.keys[SHA_256].stored_key, row.keys[SHA_256].server_key)


def test_the_secret_for_unknown_users_comes_with_the_first_user_and_stays(world: World) -> None:
    users = world.node.image.users
    assert users.secret == b""
    alter(world, upsertion(), upsertion("bob"))
    secret = users.secret
    assert len(secret) == 32
    alter(world, upsertion("carol"), delete=(("alice", 1),))
    assert world.node.image.users.secret == secret


def test_unknown_users_get_the_shapes_of_users_keys(world: World) -> None:
    users, found = world.node.image.users, world.node.authentications._find
    alter(world, upsertion("a", iterations=8192), upsertion("b"), upsertion("c"))
    rare, usual = (shape_of(users.rows[name].keys[SHA_256]) for name in "ab")
    drawn = Counter(shape_of(found(f"nobody{number}", SHA_256).keys) for number in range(300))
    assert drawn.keys() == {rare, usual}, "neither shape tells that there is such a user"
    assert 60 <= drawn[rare] <= 140, "as frequent as among users, a third"
    assert found("nobody0", SHA_256) == found("nobody0", SHA_256)
    alter(world, delete=(("a", 1), ("b", 1), ("c", 1)))
    assert found("nobody", SHA_256).keys.iterations == 8192, "the default"


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"name": ""}, "UNACCEPTABLE_CREDENTIAL"),
        ({"name": "n" * 1025}, "UNACCEPTABLE_CREDENTIAL"),
        ({"name": "a\0b"}, "UNACCEPTABLE_CREDENTIAL"),
        ({"mechanism": 0}, "UNSUPPORTED_SASL_MECHANISM"),
        ({"mechanism": 3}, "UNSUPPORTED_SASL_MECHANISM"),
        ({"iterations": 4095}, "UNACCEPTABLE_CREDENTIAL"),
        ({"iterations": 16_385}, "UNACCEPTABLE_CREDENTIAL"),
        ({"salt": b""}, "UNACCEPTABLE_CREDENTIAL"),
        ({"salt": b"s" * 257}, "UNACCEPTABLE_CREDENTIAL"),
        ({"salted_password": b"secret"}, "UNACCEPTABLE_CREDENTIAL"),
    ],
)
def test_keys_that_make_no_sense_are_refused_and_change_nothing(
    world: World, changed: dict[str, Any], refusal: str
) -> None:
    outcomes = alter(world, upsertion(**changed), upsertion("bob"))
    assert outcomes.pop("bob") == ("NONE", "")
    ((code, message),) = outcomes.values()
    assert (code, bool(message)) == (refusal, True)
    assert list(describe(world)) == ["bob"]


def test_one_fault_of_a_user_refuses_all_changes_of_that_user(world: World) -> None:
    assert alter(world, upsertion(), upsertion(mechanism=SHA_512, salt=b""))["alice"][0] == "UNACCEPTABLE_CREDENTIAL"
    assert alter(world, upsertion(), upsertion())["alice"][0] == "DUPLICATE_RESOURCE"
    assert alter(world, upsertion(), delete=(("alice", 1),))["alice"][0] == "DUPLICATE_RESOURCE"
    assert alter(world, delete=(("alice", 1),))["alice"][0] == "RESOURCE_NOT_FOUND"
    assert describe(world) == {}


def test_a_user_is_described_once(world: World) -> None:
    alter(world, upsertion())
    assert describe(world, "alice", "alice") == {"alice": ("DUPLICATE_RESOURCE", [])}


def test_users_are_refused_until_the_version_is_final_with_the_command_that_finalises_it(world: World) -> None:
    write(world, Put("metadata_version", b"2"))
    code, message = alter(world, upsertion())["alice"]
    assert code == "UNSUPPORTED_VERSION"
    assert "`cordwood cluster upgrade`" in message
    assert describe(world) == {}

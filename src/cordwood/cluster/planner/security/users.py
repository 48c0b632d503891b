"""Plans changes of users, and refuses them as Kafka does. A user without keys is gone."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import USERS_SECRET, user_key
from cordwood.cluster.metadata.users import UserRow, encode_user
from cordwood.cluster.metadata.versions import check_security_rows
from cordwood.cluster.planner.store_transactions import Plan, StoreTxn
from cordwood.cluster.stores.interface import Compare, Delete, Operation, Put, absent, has_mod_revision, has_value
from cordwood.model.coordination import MAX_NAME_BYTES, is_too_long
from cordwood.model.credentials import MAX_ITERATIONS, MIN_ITERATIONS, ScramKeys, ScramMechanism
from cordwood.model.errors import ErrorCode, ProtocolError

MAX_USERS: Final = 100_000
MAX_SALT_BYTES: Final = 256
SECRET_BYTES: Final = 32


class UserChange(NamedTuple):
    name: str
    mechanism: int
    """Numbered as on the wire."""
    keys: ScramKeys | None
    """None: the keys of the mechanism are removed."""


class UserAlteration(NamedTuple):
    plan: Plan | None


def plan_alter_users(
    image: ClusterImage, changes: Iterable[UserChange], secret: bytes
) -> dict[str, UserAlteration | ProtocolError]:
    """Plans a whole request; outcomes by user. `secret`: random bytes, for a cluster that never had a user."""
    by_user: dict[str, list[UserChange]] = {}
    for change in changes:
        by_user.setdefault(change.name, []).append(change)
    outcomes: dict[str, UserAlteration | ProtocolError] = {}
    added = 0
    for name, own in by_user.items():
        try:
            outcomes[name] = _alter(image, name, own, secret, added)
            added += name not in image.users.rows
        except ProtocolError as refusal:
            outcomes[name] = refusal
    return outcomes


def _alter(image: ClusterImage, name: str, changes: Sequence[UserChange], secret: bytes, added: int) -> UserAlteration:
    check_security_rows(image.metadata_version, "users")
    check_user_name(name)
    if max(Counter(change.mechanism for change in changes).values()) > 1:
        raise ProtocolError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    before = image.users.rows.get(name, UserRow({}))
    keys = dict(before.keys)
    for change in changes:
        mechanism = _mechanism(change.mechanism)
        if change.keys is not None:
            check_keys(mechanism, change.keys)
            keys[mechanism] = change.keys
        elif keys.pop(mechanism, None) is None:
            raise ProtocolError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    if name not in image.users.rows and len(image.users.rows) + added >= MAX_USERS:
        raise ProtocolError(ErrorCode.POLICY_VIOLATION, f"There are {MAX_USERS} users: no more can be added.")
    return UserAlteration(plan_user(name, before._replace(keys=keys), image.users.secret or secret, image.users.secret))


def plan_user(name: str, row: UserRow, secret: bytes, stored_secret: bytes) -> Plan:
    """Writes a user's row in place of the row of its revision; a row without keys is removed. `stored_secret` is empty
    if the store has none yet."""
    key = user_key(name)
    compares: list[Compare] = [has_mod_revision(key, row.mod_revision)]
    operations: list[Operation] = []
    if row.keys or row.unknown:
        value = encode_user(row)
        operations.append(Put(key, value))
        happened = has_value(key, value)
    else:
        operations.append(Delete(key))
        happened = absent(key)
    if not stored_secret:
        compares.append(absent(USERS_SECRET))
        operations.append(Put(USERS_SECRET, secret))
    return Plan((), StoreTxn(tuple(compares), tuple(operations)), happened=(happened,))


def check_user_name(name: str) -> None:
    """Raises ProtocolError for a name that no user can have."""
    if not name:
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty.")
    if is_too_long(name):
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"A user's name has at most {MAX_NAME_BYTES} bytes.")
    if "\0" in name:
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A user's name has no NUL: SASL has no way to send it.")


def check_keys(mechanism: ScramMechanism, keys: ScramKeys) -> None:
    """Raises ProtocolError for keys that no user can have."""
    if keys.iterations < MIN_ITERATIONS:
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too few iterations: {MIN_ITERATIONS} at least.")
    if keys.iterations > MAX_ITERATIONS:
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too many iterations: {MAX_ITERATIONS} at most.")
    if not 0 < len(keys.salt) <= MAX_SALT_BYTES:
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"A salt has 1 to {MAX_SALT_BYTES} bytes.")


def _mechanism(number: int) -> ScramMechanism:
    try:
        return ScramMechanism(number)
    except ValueError:
        raise ProtocolError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None

"""Plans changes of delegation tokens, and refuses them as Kafka does; and the key of tokens that all brokers share."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import TOKEN_KEY, token_row_key
from cordwood.cluster.metadata.tokens import encode_token
from cordwood.cluster.metadata.versions import check_security_rows
from cordwood.cluster.planner.store_transactions import Plan, StoreTxn
from cordwood.cluster.stores.interface import (
    Delete,
    KeyValue,
    Put,
    absent,
    has_mod_revision,
    has_value,
    unchanged_since,
)
from cordwood.model.delegation_tokens import DelegationToken
from cordwood.model.errors import ErrorCode, ProtocolError

MAX_TOKENS: Final = 10_000
"""At about 1 KB each in every broker: 10 MB."""
MAX_TOKENS_OF_A_REQUESTER: Final = 1_000
"""Nobody needs a right to have tokens made: one program must not use up what all have."""
REMOVED_AT_ONCE: Final = 100

Change = Callable[[DelegationToken], DelegationToken | None]
"""A change of a token as it is when the change is planned; None: the token is removed. Raises ProtocolError."""


class TokenAlteration(NamedTuple):
    plan: Plan | None
    token: DelegationToken | None
    """After the change; None: the token is gone."""


def plan_create_token(image: ClusterImage, token: DelegationToken) -> TokenAlteration:
    """Raises ProtocolError."""
    check_security_rows(image.metadata_version, "delegation tokens")
    rows = image.tokens.rows
    if len(rows) + len(image.tokens.foreign) >= MAX_TOKENS:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION, f"There are {MAX_TOKENS} delegation tokens: no more can be made until some end."
        )
    own = sum(row.token.requester == token.requester for row in rows.values())
    if own >= MAX_TOKENS_OF_A_REQUESTER:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION,
            f"{token.requester} has {own} delegation tokens: no more can be made until some end.",
        )
    key, row = token_row_key(token.token_id), encode_token(token)
    plan = Plan((), StoreTxn((absent(key),), (Put(key, row),)), happened=(has_value(key, row),))
    return TokenAlteration(plan, token)


def plan_change_token(image: ClusterImage, token_id: str, change: Change) -> TokenAlteration:
    """Raises ProtocolError."""
    found = image.tokens.rows.get(token_id)
    if found is None:
        raise ProtocolError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "There is no such delegation token.")
    after = change(found.token)
    if after == found.token:
        return TokenAlteration(None, after)
    key = token_row_key(token_id)
    unchanged = has_mod_revision(key, found.mod_revision)
    if after is None:
        return TokenAlteration(Plan((), StoreTxn((unchanged,), (Delete(key),)), happened=(absent(key),)), None)
    row = encode_token(after)
    return TokenAlteration(Plan((), StoreTxn((unchanged,), (Put(key, row),)), happened=(has_value(key, row),)), after)


def plan_remove_expired(image: ClusterImage, now_ms: int) -> Iterable[StoreTxn]:
    """Removes some of the tokens that are over."""
    over = (row for row in image.tokens.rows.values() if row.token.is_over(now_ms))
    for row in islice(over, REMOVED_AT_ONCE):
        key = token_row_key(row.token.token_id)
        yield StoreTxn((has_mod_revision(key, row.mod_revision),), (Delete(key),))


def plan_token_key(fingerprint: str, stored: KeyValue | None) -> StoreTxn:
    """Makes a key of tokens the cluster's, with the registration of a broker that has it. The row is written in any
    case: a broker that changes the key compares the row's revision, and so sees each registration beside it."""
    compare = absent(TOKEN_KEY) if stored is None else unchanged_since(stored)
    return StoreTxn((compare,), (Put(TOKEN_KEY, fingerprint.encode()),))

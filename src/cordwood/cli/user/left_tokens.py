"""What a user's delegation tokens have to do with a password that changes and a user who goes: they outlive both."""

from __future__ import annotations

from typing import Any

from cordwood.cli.terminal.connecting import bootstrap_of
from cordwood.cli.terminal.output import remark
from cordwood.cli.token.shown import time_of
from cordwood.model.failure import Failure


def left_tokens(user: str, bootstrap_servers: str | None, client_config: str | None, timeout_s: float) -> list[str]:
    """Says which tokens of the user are still good, and how to end them. Returns their ids. It never fails: the user is
    changed by then."""
    from cordwood.administration.access.tokens import tokens_left

    look = f"look for delegation tokens, which go on: `cordwood token list --owner {user}` by an administrator's log-in"
    try:
        found = tokens_left(bootstrap_of(bootstrap_servers, client_config), timeout_s, user)
    except Failure as failure:
        remark(f"{failure.message}; {look}")
        return []
    if found is None:
        # A listener that asks nobody tells nobody of tokens.
        return []
    for held in found:
        token = held.token
        remark(
            f"who has the delegation token {token.token_id} goes on as {user}, until {time_of(token.ends_ms)} at the "
            f"latest: `cordwood token expire {token.token_id}` ends it"
        )
    return [held.token.token_id for held in found]


def as_json(token_ids: list[str]) -> dict[str, Any]:
    return {"tokens": token_ids} if token_ids else {}

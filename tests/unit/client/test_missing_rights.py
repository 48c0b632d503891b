"""A refusal names the right that the client lacks, as the brokers' own table of rights has it."""

import pytest

from cordwood.client.errors import RIGHTS, Asked, refusal
from cordwood.model.errors import ErrorCode
from cordwood.node.requests.rights import RIGHTS as RIGHTS_OF_BROKERS
from cordwood.wire.apis import ApiKey


@pytest.mark.parametrize(("code", "api_key"), [(code, key) for code, rights in RIGHTS.items() for key in rights])
def test_the_right_is_in_the_brokers_table(code: ErrorCode, api_key: ApiKey) -> None:
    operations = {right.operation for right in RIGHTS_OF_BROKERS[api_key] if right.kind.refusal == code}
    assert RIGHTS[code][api_key] in operations


def test_the_message_names_the_right() -> None:
    asked = Asked(ApiKey.FETCH, "broker 1 (a:1) refused Fetch of orders-0")
    assert str(refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked)) == (
        "broker 1 (a:1) refused Fetch of orders-0: TOPIC_AUTHORIZATION_FAILED (the right is missing: Read of the "
        "topic; `cordwood acl explain` says which rule decides)"
    )
    assert "one on the group" in str(refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, asked))
    told = refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked, "The right is missing: Read of the topic 'orders'.")
    assert str(told).endswith("(The right is missing: Read of the topic 'orders'.)")

"""docs/protocol-support.md says what the handlers declare, and the declarations are within Kafka's ranges."""

from pathlib import Path

from cordwood.node.apis import SERVED
from cordwood.node.protocol_support import protocol_support_markdown
from cordwood.wire.apis import APIS

PAGE = Path(__file__).parents[2] / "docs" / "protocol-support.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == protocol_support_markdown(), "run: make docs"


def test_every_served_version_has_a_codec() -> None:
    for key, api in SERVED.items():
        codec = APIS[key]
        assert codec.min_version <= api.min_version <= api.max_version <= codec.max_version

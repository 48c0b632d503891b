"""The API versions that a broker and this client both speak: asked once per connection; the highest is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cordwood.client.connection import Connection
from cordwood.client.errors import BrokerUnreachable, VersionMismatch, error_code, refusal
from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.asking import BadResponse, decode_response, encode_request

if TYPE_CHECKING:
    from cordwood.wire.message_types.api_versions import ApiVersions

SOFTWARE_NAME: Final = "cordwood-client"
SOFTWARE_VERSION: Final = "1"
_ASK_WITH: Final = 3
"""The first version of ApiVersions with finalized features. Older brokers answer with version 0."""

WRITTEN_FOR: Final = {
    ApiKey.PRODUCE: 13,
    ApiKey.FETCH: 18,
    ApiKey.LIST_OFFSETS: 11,
    ApiKey.METADATA: 13,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.FIND_COORDINATOR: 6,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.CREATE_DELEGATION_TOKEN: 3,
    ApiKey.RENEW_DELEGATION_TOKEN: 2,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 3,
    ApiKey.FAMILY_JOIN: 0,
    ApiKey.FAMILY_RENEW: 0,
    ApiKey.FAMILY_DECIDE: 1,
    ApiKey.FAMILY_LIST: 0,
    ApiKey.FAMILY_RECALL: 0,
}
"""The last version of each API that this client uses. The codecs may know later versions with another meaning: from
OffsetCommit 10, OffsetFetch 10 and TxnOffsetCommit 6 on topics go by id, and AddPartitionsToTxn 4 is for brokers."""

NEEDED: Final = {ApiKey.METADATA: 4, ApiKey.OFFSET_FETCH: 2}
"""The oldest usable versions: an older Metadata would create the topic, an older OffsetFetch cannot ask for all
positions."""

IMPLICIT_PARTITIONS: Final = 2
"""From this transaction.version on, a Produce adds its partitions to the transaction by itself (KIP-890)."""


@dataclass(frozen=True)
class BrokerVersions:
    name: str
    """The broker's name in messages."""
    ranges: Mapping[int, tuple[int, int]]
    """Version ranges by API key, as the broker listed them."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels of features, by name."""

    def supports(self, api_key: int) -> bool:
        return self._common(api_key, None) is not None

    def pick(self, api_key: int, at_most: int | None = None) -> int:
        """The highest version that both sides speak, up to `at_most`. Raises VersionMismatch."""
        found = self._common(api_key, at_most)
        if found is not None:
            return found
        api, listed = APIS[api_key], self.ranges.get(api_key)
        has = "does not have it" if listed is None else f"has versions {listed[0]} to {listed[1]}"
        limit = _highest(api_key, at_most)
        speaks = f"{_lowest(api_key)} to {limit}"
        raise VersionMismatch(f"{self.name} {has}: {api.name}, of which this client speaks {speaks}")

    def _common(self, api_key: int, at_most: int | None) -> int | None:
        api, listed = APIS.get(api_key), self.ranges.get(api_key)
        if api is None or listed is None:
            return None
        highest = min(listed[1], _highest(api_key, at_most))
        return highest if highest >= max(_lowest(api_key), listed[0]) else None

    @property
    def transaction_version(self) -> int:
        return self.features.get("transaction.version", 0)


def _lowest(api_key: int) -> int:
    return NEEDED.get(ApiKey(api_key), APIS[api_key].min_version)


def _highest(api_key: int, at_most: int | None) -> int:
    known = APIS[api_key].max_version
    limits = [known, WRITTEN_FOR.get(ApiKey(api_key), known), known if at_most is None else at_most]
    return min(limits)


def negotiate(connection: Connection) -> BrokerVersions:
    try:
        response = _ask(connection, _ASK_WITH)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = _ask(connection, 0)
    except BadResponse as reason:
        connection.close()
        raise BrokerUnreachable(f"{connection.name} does not speak the Kafka protocol: {reason}") from reason
    if response.error_code:
        connection.close()
        raise refusal(error_code(response.error_code), f"{connection.name} was asked for its API versions")
    ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    features: dict[str, int] = {}
    if response.finalized_features_epoch >= 0:
        features = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return BrokerVersions(connection.name, ranges, features)


def _ask(connection: Connection, version: int) -> ApiVersions.Response:
    software = {"client_software_name": SOFTWARE_NAME, "client_software_version": SOFTWARE_VERSION}
    frame = connection.request(ApiKey.API_VERSIONS, version, encode_request(ApiKey.API_VERSIONS, version, software))
    # A broker that does not know this version answers with version 0; the error code tells (KIP-511).
    if version and int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    return decode_response(ApiKey.API_VERSIONS, version, frame)

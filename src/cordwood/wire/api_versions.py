"""ApiVersions, versions 0 to 5: the first request of every client, and its response.

The response header is version 0 in every version, so that a client can read the answer before it knows our versions. A
request of an unknown version is answered, too (`encode_unsupported_version`).
"""

import re
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import APIS, Api, ApiKey
from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.encoding.primitives import (
    INT16,
    INT32,
    INT32_PAIR,
    INT64,
    MALFORMED,
    NO_TAGS,
    Frame,
    array_count,
    compact_array_count,
    compact_string,
    not_understood,
    present,
    read_compact_string,
    skip_tagged_fields,
    tagged_fields,
    trailing_bytes,
)
from cordwood.wire.requests import RequestHeader

FLEXIBLE_FROM: Final = 3
ZERO_MINIMUM_FROM: Final = 4
"""Older clients fail on a supported feature whose minimum is 0 (KAFKA-17011)."""

_API: Final = APIS[ApiKey.API_VERSIONS]
_ROW: Final = Struct(">hhh")
_ROW_WITH_TAGS: Final = Struct(">hhhB")
_LEVELS_WITH_TAGS: Final = Struct(">hhB")
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsRequest(NamedTuple):
    client_software_name: str = ""
    client_software_version: str = ""
    cluster_id: str | None = None
    """The cluster that the client means to reach (version 5 and later); `node_id` is the node."""
    node_id: int = -1

    def error_code(self, version: int, cluster_id: str, node_id: int) -> ErrorCode:
        """The error of this request at the broker `node_id` of the cluster `cluster_id`."""
        if version >= FLEXIBLE_FROM and not (
            _SOFTWARE.fullmatch(self.client_software_name) and _SOFTWARE.fullmatch(self.client_software_version)
        ):
            return ErrorCode.INVALID_REQUEST
        if (self.cluster_id is None) != (self.node_id == -1):
            return ErrorCode.INVALID_REQUEST
        if self.cluster_id is not None and (self.cluster_id, self.node_id) != (cluster_id, node_id):
            return ErrorCode.REBOOTSTRAP_REQUIRED
        return ErrorCode.NONE


def decode_api_versions(header: RequestHeader, frame: Frame) -> ApiVersionsRequest:
    version, position = header.api_version, header.body_start
    if not _API.serves(version):
        raise BadRequest(f"There is no ApiVersions v{version}.")
    request = ApiVersionsRequest()
    try:
        if version >= FLEXIBLE_FROM:
            software, position = read_compact_string(frame, position)
            software_version, position = read_compact_string(frame, position)
            cluster_id, node_id = None, -1
            if version >= 5:
                cluster_id, position = read_compact_string(frame, position)
                (node_id,) = INT32.unpack_from(frame, position)
                position += 4
            position = skip_tagged_fields(frame, position)
            request = ApiVersionsRequest(present(software), present(software_version), cluster_id, node_id)
    except MALFORMED as reason:
        raise not_understood("ApiVersions", version, reason) from None
    if position != len(frame):
        raise trailing_bytes("ApiVersions", version, len(frame) - position)
    return request


class SupportedFeature(NamedTuple):
    name: str
    min_version: int
    max_version: int


class FinalizedFeature(NamedTuple):
    name: str
    max_level: int
    min_level: int


def encode_api_versions_response(
    version: int,
    correlation_id: int,
    apis: Iterable[Api],
    *,
    supported_features: Sequence[SupportedFeature] = (),
    finalized_features: Sequence[FinalizedFeature] = (),
    finalized_features_epoch: int = -1,
    error_code: int = 0,
    throttle_time_ms: int = 0,
) -> bytes:
    """The whole frame, with its size. Clients look at finalized features only if their epoch is 0 or more."""
    rows = sorted((api.key, api.listed_min, api.max_version) for api in apis)
    if version < FLEXIBLE_FROM:
        parts = [INT16.pack(error_code), array_count(len(rows))]
        parts += [_ROW.pack(*row) for row in rows]
        if version >= 1:
            parts.append(INT32.pack(throttle_time_ms))
    else:
        parts = [INT16.pack(error_code), compact_array_count(len(rows))]
        parts += [_ROW_WITH_TAGS.pack(*row, 0) for row in rows]
        parts.append(INT32.pack(throttle_time_ms))
        if version < ZERO_MINIMUM_FROM:
            supported_features = [feature for feature in supported_features if feature.min_version > 0]
        tags: list[tuple[int, bytes]] = []
        if supported_features:
            tags.append((0, _features(supported_features)))
        if finalized_features_epoch != -1:
            tags.append((1, INT64.pack(finalized_features_epoch)))
        if finalized_features:
            tags.append((2, _features(finalized_features)))
        parts.append(tagged_fields(tags) if tags else NO_TAGS)
    body = b"".join(parts)
    return INT32_PAIR.pack(len(body) + 4, correlation_id) + body


def encode_unsupported_version(correlation_id: int) -> bytes:
    """The answer to an ApiVersions request of an unknown version (KIP-511): a version 0 body that lists only
    ApiVersions itself, so that the client knows the version to try next."""
    return encode_api_versions_response(0, correlation_id, (_API,), error_code=ErrorCode.UNSUPPORTED_VERSION)


def _features(features: Sequence[SupportedFeature] | Sequence[FinalizedFeature]) -> bytes:
    parts = [compact_array_count(len(features))]
    for name, first, second in features:
        parts += (compact_string(name), _LEVELS_WITH_TAGS.pack(first, second, 0))
    return b"".join(parts)

"""Writes the throttle time into an answer that is made already: nearly all answers are never throttled."""

from __future__ import annotations

from functools import cache

from cordwood.node.loop.ports import Frame
from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.encoding.primitives import INT32
from cordwood.wire.encoding.schema import load
from cordwood.wire.requests import RequestHeader

_FIELD = "throttle_time_ms"
_SIZE_AND_CORRELATION = 8
_SIZES = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8}


def with_throttle_time(header: RequestHeader, frame: Frame, throttle_ms: int) -> Frame:
    """The same answer, which tells its client how long it is held back. An answer without a place for that is returned
    as it is."""
    place = _place(header.api_key, header.api_version)
    if place is None:
        return frame
    at = 0 if place >= 0 else -1
    part = frame if isinstance(frame, bytes) else frame[at]
    needed = -place if place < 0 else place + INT32.size
    if not isinstance(part, bytes) or len(part) < needed:
        return frame
    if place < 0:
        if header.api_key == ApiKey.PRODUCE and flexible(header.api_key, header.api_version) and part[-1]:
            # The answer ends with the addresses of other leaders, and its client goes there.
            return frame
        place += len(part)
    told = part[:place] + INT32.pack(throttle_ms) + part[place + INT32.size :]
    if isinstance(frame, bytes):
        return told
    parts = list(frame)
    parts[at] = told
    return parts


@cache
def _place(key: int, version: int) -> int | None:
    """The place of the field: from the start of the frame, or negative, from its end; None: it has no fixed place."""
    body = load(APIS[key].name)["response"].body
    fields = [field for field in body.fields if version in field.versions and field.tag is None]
    tags = 1 if flexible(key, version) else 0
    place = _SIZE_AND_CORRELATION + tags
    for field in fields:
        if field.name == _FIELD:
            return place
        if field.is_array or field.type not in _SIZES:
            break
        place += _SIZES[field.type]
    has_tagged = any(field.tag is not None and version in field.versions for field in body.fields)
    if fields and fields[-1].name == _FIELD and (key == ApiKey.PRODUCE or not has_tagged):
        return -INT32.size - tags
    return None

"""The subject of a certificate as Java writes it (RFC 2253, `X500Principal.getName`), from its DER bytes.

Rules of `ssl.principal.mapping.rules` and names of users are written for this form, so each character counts: the last
part of the name comes first, `CN=alice,O=Woods`; types without a short name are numbers with their value in hex.
"""

from collections.abc import Iterator
from typing import Final

_SHORT_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_IDENTIFIER: Final = 0x06
_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x13: "utf-8",  # PrintableString
    0x14: "utf-8",  # T61String
    0x16: "utf-8",  # IA5String
    0x1B: "utf-8",  # GeneralString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
"""The encoding of a text by the tag of its DER value."""


class BadSubject(ValueError):
    """The bytes are not a name in DER."""


def subject_text(der: bytes) -> str:
    """The text of a name. Raises BadSubject."""
    try:
        parts = [_attributes(attributes) for _, attributes in _values(_only(der, _SEQUENCE), _SET)]
    except (IndexError, ValueError) as error:
        if isinstance(error, BadSubject):
            raise
        raise BadSubject(f"the subject of the certificate cannot be read: {error}") from None
    return ",".join(reversed(parts))


def _attributes(der: bytes) -> str:
    """One part of a name: usually one attribute, as in `O=Woods`."""
    return "+".join(_attribute(attribute) for _, attribute in _values(der, _SEQUENCE))


def _attribute(der: bytes) -> str:
    (tag, number), (value_tag, value) = list(_values(der))[:2]
    if tag != _OBJECT_IDENTIFIER:
        raise BadSubject("the subject of the certificate has an attribute without a type")
    kind = _dotted(number)
    short = _SHORT_NAMES.get(kind)
    encoding = _ENCODINGS.get(value_tag)
    if short is None or encoding is None:
        return f"{short or kind}=#{_without_first(der).hex()}"
    return f"{short}={_escaped(value.decode(encoding))}"


def _escaped(text: str) -> str:
    first = len(text) - len(text.lstrip(" \r"))
    end = len(text.rstrip(" \r"))
    letters = []
    for place, letter in enumerate(text):
        if letter in _ESCAPED or not first <= place < end:
            letters.append("\\")
        letters.append("\\00" if letter == "\0" else letter)
    return "".join(letters)


def _dotted(number: bytes) -> str:
    """An object identifier in numbers: 2.5.4.3."""
    numbers, value = [], 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


# DER: a tag, a length and so many bytes


def _values(der: bytes, wanted: int | None = None) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(der):
        tag, start, end = _next(der, place)
        if wanted is not None and tag != wanted:
            raise BadSubject(f"the subject of the certificate has the tag {tag}, not {wanted}")
        yield tag, der[start:end]
        place = end


def _only(der: bytes, wanted: int) -> bytes:
    ((_, content),) = _values(der, wanted)
    return content


def _without_first(der: bytes) -> bytes:
    """All values but the first, with their tags and lengths."""
    return der[_next(der, 0)[2] :]


def _next(der: bytes, place: int) -> tuple[int, int, int]:
    """The tag of the value at a place, and where its content begins and ends."""
    tag, length, start = der[place], der[place + 1], place + 2
    if length >= 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[start : start + size])
        start += size
    if start + length > len(der):
        raise BadSubject("the subject of the certificate is cut off")
    return tag, start, start + length

"""Control characters, shown and not obeyed: names that clients chose must not steer the terminal of an operator."""

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_IN_A_LINE = _CONTROLS | {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}
_IN_A_TEXT = {code: shown for code, shown in _IN_A_LINE.items() if code not in (ord("\t"), ord("\n"))}
_IN_JSON = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def as_line(text: str) -> str:
    """A text that is one cell or one line: it neither moves the cursor nor ends the cell."""
    return text.translate(_IN_A_LINE)


def as_text(text: str) -> str:
    """A text that may have lines and tabs of ours."""
    return text.translate(_IN_A_TEXT)


def as_json_text(encoded: str) -> str:
    """Encoded JSON, with the escapes that `json.dumps` leaves out where letters of all scripts stay as they are."""
    return encoded.translate(_IN_JSON)

"""The one error for bytes that are not the records they claim to be."""


class CorruptRecords(Exception):
    """A batch whose records cannot be read: a bad structure, a bad compressed block, or too much once uncompressed.

    Whose fault it is depends on where the bytes came from: on an append it is the client's (INVALID_RECORD), in a
    log it is damage. Whoever called knows, so this is neither kind of error by itself.
    """


class TooMuchToOpen(CorruptRecords):
    """A batch that may be valid, but has more bytes once uncompressed, or more headers, than its reader opens."""

"""The one error for bytes that are not the records they claim to be."""


class CorruptRecords(Exception):
    """A batch whose records cannot be read: a bad structure, a bad compressed block, or too much once uncompressed.

    The caller knows whose fault it is: the client's on an append (INVALID_RECORD), damage in a log. So this class is
    neither kind of error by itself.
    """


class TooMuchToOpen(CorruptRecords):
    """A batch that may be valid, but has more bytes once uncompressed, or more headers, than its reader opens."""

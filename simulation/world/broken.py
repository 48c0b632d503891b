"""The exception that checkers raise."""


class InvariantBroken(AssertionError):
    """The broker broke a promise of the log."""

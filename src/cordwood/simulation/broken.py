"""The exception that checkers raise."""


class InvariantBroken(AssertionError):
    """The broker did what a log that keeps its promises cannot do."""

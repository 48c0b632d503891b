"""Refuses to open a directory in plain text that a secure start made: everybody could do everything that was for those
who log in.

Imports nothing: each start asks this.
"""

import os
from collections.abc import Container
from typing import Final

SECURE: Final = "secure"
KEYSTORE: Final = "broker.pem"
AUTHORIZER: Final = "authorizer.class.name"


def plain_text_problem(data_directory: str, named: Container[str]) -> str:
    """The reason why a start that is not secure must not open the directory; empty if it may.

    `named`: the names of the settings that are given. One who gives `authorizer.class.name`, even as an empty text, has
    decided who is asked.
    """
    if AUTHORIZER in named or not os.path.exists(os.path.join(data_directory, SECURE, KEYSTORE)):
        return ""
    return (
        f"{data_directory} was made with --secure, and these settings ask nobody who he is: everybody who reaches the "
        "port could do everything, in plain text"
    )


def ways_out(nobody: str) -> str:
    """The starts that say what they mean. `nobody`: how the caller gives `authorizer.class.name` an empty text."""
    return (
        f"start it with --secure; or set {AUTHORIZER}, listeners and certificates by hand (docs/security.md); or, if "
        f"everybody may do everything from now on, say so: {nobody}"
    )

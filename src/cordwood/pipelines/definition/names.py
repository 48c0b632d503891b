"""The form of names that pipelines and tables have: they become names of directories."""

import re
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
MAX_NAME_LENGTH: Final = 100

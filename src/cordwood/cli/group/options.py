"""What the group commands share of their command lines."""

from typing import Annotated

import typer

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.", show_default=False)]

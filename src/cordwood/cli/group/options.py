"""Arguments that several group commands take."""

from typing import Annotated

import typer

from cordwood.cli.options import checked_name

GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", callback=checked_name, help="The group's name.", show_default=False)
]

"""Arguments that several transaction commands take."""

from typing import Annotated

import typer

from cordwood.cli.options import checked_name

TransactionalId = Annotated[
    str, typer.Argument(metavar="ID", callback=checked_name, help="The transactional id.", show_default=False)
]

"""Options of the commands that move partitions."""

from typing import Annotated

import typer

AtOnce = Annotated[int, typer.Option("--at-once", min=1, metavar="N", help="Partitions that move at the same time.")]
Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle",
        metavar="RATE",
        help="Bytes per second that each broker copies at most for moves: 50MiB. Replicas in sync are not slowed down.",
        show_default=False,
    ),
]
UndoFile = Annotated[
    str | None,
    typer.Option(
        "--undo-file",
        metavar="FILE",
        help="A new file for the present replicas; an existing one is refused. Default: a file here, with the time.",
    ),
]

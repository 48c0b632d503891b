"""`cordwood serve`: a broker, or several workers on one directory. `start.py` needs no typer."""

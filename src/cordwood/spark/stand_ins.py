"""Scripts that stand in for programs which Spark starts."""

import stat
import tempfile
from pathlib import Path


def put_script(script: Path, text: str) -> bool:
    """Has an executable file with this text at that path. False if it cannot be written."""
    try:
        if script.exists() and script.read_text() == text:
            return True
        script.parent.mkdir(parents=True, exist_ok=True)
        # The script is written beside and renamed: another session may be starting it at this moment.
        with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
            file.write(text)
        written = Path(file.name)
        written.chmod(written.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        written.rename(script)
    except OSError:
        return False
    return True

"""TAB in real shells: each completes commands with the script that `cordwood --show-completion` prints, and starts no
broker. zsh and fish come from Debian's archive where the machine lacks them."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.debian import NotHere, unpacked

_WITHIN_S = 60
_PACKAGES = {"zsh": ("zsh", "zsh-common"), "fish": ("fish", "fish-common", "libpcre2-32-0")}


def _found(shell: str) -> tuple[str, Path]:
    """The shell's program, and the directory below which its files are. Skips the test where there is no such shell."""
    on_path = shutil.which(shell)
    if on_path is not None:
        return on_path, Path("/")
    try:
        root = unpacked(*_PACKAGES[shell], holds=f"usr/share/doc/{shell}", place=f"shells/{shell}")
    except NotHere as reason:
        pytest.skip(f"no {shell}: {reason}")
    return next(str(path) for path in (root / "usr/bin" / shell, root / "bin" / shell) if path.exists()), root


def _environment(where: Path) -> dict[str, str]:
    """A PATH on which `cordwood` is this source, and a free port: a broker that starts by mistake is seen."""
    program = where / "bin" / "cordwood"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cordwood.cli "$@"\n')
    program.chmod(0o755)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("CORDWOOD_")}
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    homes = {"HOME": str(where), "ZDOTDIR": str(where)}
    return {**kept, **homes, "PATH": path, "TERM": "dumb", "CORDWOOD_LISTEN": "127.0.0.1:0"}


def _script(shell: str, environment: Mapping[str, str]) -> str:
    # typer takes the shell from the name of the parent process unless it is told not to look.
    told = {**environment, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = ["cordwood", "--show-completion", shell]
    return subprocess.run(command, env=told, capture_output=True, text=True, timeout=_WITHIN_S, check=True).stdout


def _said(command: list[str], where: Path, environment: Mapping[str, str]) -> str:
    """The output of a shell. One that does not end is killed with everything that it started."""
    process = subprocess.Popen(
        command,
        cwd=where,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=_WITHIN_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0] + "\n(it did not end)"


def test_tab_in_bash_completes_a_command_and_starts_no_broker(tmp_path: Path) -> None:
    environment = _environment(tmp_path)
    lines = "COMP_WORDS=(cordwood clu); COMP_CWORD=1; _cordwood_completion cordwood; echo got ${COMPREPLY[*]}"
    said = _said(["bash", "--norc", "-c", f"{_script('bash', environment)}\n{lines}"], tmp_path, environment)
    assert not (tmp_path / "cordwood-data").exists(), said
    assert said.split() == ["got", "cluster"]


@pytest.mark.interop
def test_tab_in_fish_completes_a_command_and_starts_no_broker(tmp_path: Path) -> None:
    program, root = _found("fish")
    environment = _environment(tmp_path)
    libraries = [str(each.parent) for each in root.glob("usr/lib/*/libpcre2-32.so.0")] if root != Path("/") else []
    environment |= {"LD_LIBRARY_PATH": ":".join(libraries)}
    lines = f"{_script('fish', environment)}\ncomplete -C 'cordwood clu'"
    said = _said([program, "--no-config", "-c", lines], tmp_path, environment)
    assert not (tmp_path / "cordwood-data").exists(), said
    assert re.search(r"^cluster\b", said, re.MULTILINE), said


@pytest.mark.interop
def test_tab_in_zsh_completes_a_command_and_starts_no_broker(tmp_path: Path) -> None:
    program, root = _found("zsh")
    environment = _environment(tmp_path)
    setup = tmp_path / ".zshrc"
    modules = next((each.parent.parent for each in root.glob("usr/lib/*/zsh/*/zsh/complete.so")), None)
    places = f"module_path=({modules}); fpath=({root}/usr/share/zsh/functions/**/*(/))\n" if root != Path("/") else ""
    setup.write_text(f"{places}autoload -Uz compinit; compinit -u -D\n{_script('zsh', environment)}\nPS1='ready> '\n")
    said = _typed(program, [("", "ready> "), ("cordwood clu\t", "cluster")], tmp_path, environment)
    assert not (tmp_path / "cordwood-data").exists(), said
    assert "cluster" in said, said


def _typed(program: str, keys: list[tuple[str, str]], where: Path, environment: Mapping[str, str]) -> str:
    """What a terminal shows while keys are typed: each with the text that the shell shows before the next."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(where)
        os.execve(program, [program, "--no-global-rcs", "-i"], dict(environment))
    shown = ""
    give_up = time.monotonic() + _WITHIN_S
    try:
        for key, answer in keys:
            os.write(terminal, key.encode())
            while answer not in shown:
                if not select.select([terminal], [], [], max(give_up - time.monotonic(), 0))[0]:
                    return f"{shown}\n(no answer to {key!r})"
                shown += os.read(terminal, 65_536).decode(errors="replace")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(terminal)  # the end of its terminal ends what the shell runs
        os.waitpid(pid, 0)
    return shown

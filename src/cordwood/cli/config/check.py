"""`cordwood config check`: needs no broker."""

from typing import Annotated

import typer

from cordwood.cli.serving.start import content_of
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json, print_table, remark, say
from cordwood.model.failure import ExitCode
from cordwood.model.quantities import count_in_words


def check_config(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The TOML file of `cordwood serve --config FILE`.")],
    required: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            metavar="NAME",
            help="A setting that the file must set; may be given several times. A service requires log.dirs: the "
            "default directory depends on where the broker is started.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a broker's configuration file. Needs no broker.

    Names every unknown setting, every value out of bounds, and settings that contradict each other, and then ends with
    exit code 5. Otherwise it shows the settings of the file, beside the defaults. The environment and flags are
    ignored: they override the file when a broker starts.
    """
    from cordwood.model.settings.broker_settings import broker_setting
    from cordwood.model.settings.configuration import load_settings, problems_of

    toml = content_of(file)
    problems = problems_of(toml, file)
    texts = {} if problems else load_settings(toml, file_name=file).texts
    rows = [
        (name, setting.shown(text), setting.format(setting.default))
        for name, text in texts.items()
        if (setting := broker_setting(name)) is not None
    ]
    if not problems:
        problems = [f"{file} does not set {name}" for name in required or () if name not in texts]
    if as_json:
        print_json(
            {
                "file": file,
                "valid": not problems,
                "problems": problems,
                "settings": {name: text for name, text, _ in rows},
            }
        )
    elif problems:
        for problem in problems:
            say(problem)
        remark(f"{count_in_words(len(problems), 'problem')}: a broker does not start with {file}")
    elif not texts:
        say(f"{file} is valid, and sets nothing.")
    else:
        say(f"{file} is valid. It sets:")
        print_table(["setting", "value", "default"], rows)
    if problems:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)

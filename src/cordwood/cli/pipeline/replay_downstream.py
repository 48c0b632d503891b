"""`cordwood pipeline replay --downstream`: a pipeline and all that read it, replayed one after the other into a set."""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from cordwood.cli.pipeline.compare import Judged, judge
from cordwood.cli.pipeline.foreground import asked_again, check_rules_first, run_in_foreground, telling
from cordwood.cli.pipeline.target import Found
from cordwood.cli.terminal.doing import Doing
from cordwood.cli.terminal.output import print_json_line, remark, say
from cordwood.cli.terminal.silent_brokers import naming_silent_brokers
from cordwood.pipelines.definition.errors import WrongState, shown_path
from cordwood.pipelines.editions.downstream import (
    Planned,
    begun_beside,
    begun_set,
    with_downstream,
    with_inputs_from_outside,
)
from cordwood.pipelines.editions.edition_sets import EditionSet
from cordwood.pipelines.editions.editions import Edition
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.editions.swapping import lock_path
from cordwood.pipelines.execution.idle import has_nothing_to_do
from cordwood.pipelines.execution.topics import check_inputs, prepare_topics
from cordwood.pipelines.execution.unread import unread
from cordwood.pipelines.formats.trial_writes import check_tables_can_be_written
from cordwood.pipelines.process.tries import Tries

if TYPE_CHECKING:
    from cordwood.client.bootstrap import Bootstrap
    from cordwood.pipelines.monitoring import PipelineMonitor

T = TypeVar("T")

_MAX_ROUNDS: Final = 100
_SAMPLES: Final = 5


def replay_downstream(
    found: Found,
    *,
    starting: str,
    fresh: bool,
    bootstrap: "Bootstrap",
    rows_per_second: int | None,
    max_restarts: int,
    as_json: bool,
    monitor: "PipelineMonitor | None",
    verbose: bool,
) -> None:
    """Replays all members in their order until the last one has caught up, and shows what differs."""
    project, root = found.project, found.pipeline.name
    planned = with_downstream(project, Planned(found.pipeline, found.source_file, found.is_kept, starting))
    for each in with_inputs_from_outside(project, planned):
        if each.inputs:
            with naming_silent_brokers(bootstrap):
                check_inputs(bootstrap, each)
        check_tables_can_be_written(each)
    if fresh or begun_beside(project, root, planned) is None:
        for one in planned:
            check_rules_first(one.pipeline, one.source_file)
    made = begun_set(project, root, planned, fresh=fresh, now_ms=int(time.time() * 1000))
    members = [
        Found(each.pipeline, project, project.state(each.pipeline.name), each.source_file, each.is_kept)
        for each in planned
    ]
    if not as_json:
        _say_members(made, planned, root)

    def ask(member: Found, edition: Edition, question: Callable[[], T]) -> T:
        tell = telling(member, edition, Doing(), as_json=as_json, monitor=monitor, verbose=verbose)
        with naming_silent_brokers(bootstrap):
            return asked_again(question, member, edition, tell, Tries(max_restarts))

    for _ in range(_MAX_ROUNDS):
        for member in members:
            if made not in project.sets.all():
                raise WrongState(
                    f"the set ({made}) was swapped or removed by another command", "`cordwood pipeline status` shows it"
                )
            edition = _edition(made, member)
            lock = RunLock(lock_path(member.state, edition.name))
            lock.take(f"edition {edition.name} of {member.pipeline.name}", int(time.time() * 1000))
            try:
                if not ask(member, edition, partial(_is_to_run, member, edition, bootstrap)):
                    continue
                has_ended = run_in_foreground(
                    member,
                    edition,
                    lock,
                    bootstrap=bootstrap,
                    once=True,
                    replay=True,
                    rows_per_second=rows_per_second,
                    max_restarts=max_restarts,
                    as_json=as_json,
                    monitor=monitor,
                    verbose=verbose,
                )
            finally:
                lock.release()
            if not has_ended or _edition(made, member).caught_up_at_ms is None:
                remark("Ended before all of the set has caught up: the same command goes on with it.")
                return
        here = [(member, _edition(made, member)) for member in members]
        if all(ask(*each, partial(_has_caught_up, *each, bootstrap)) for each in here):
            break
    for member in members:
        edition = _edition(made, member)
        judged = ask(member, edition, partial(_judged, member, edition, bootstrap))
        if as_json:
            print_json_line({"event": "compared", **judged.as_json()})
        elif judged.found.outputs or judged.found.unwritten:
            judged.show()
    if not as_json:
        remark(f"`cordwood pipeline swap {root}` makes all {len(members)} live at one moment: {made}.")


def _edition(made: EditionSet, member: Found) -> Edition:
    of = made.member(member.pipeline.name)
    assert of is not None
    return member.state.edition(of.edition)


def _is_to_run(member: Found, edition: Edition, bootstrap: "Bootstrap") -> bool:
    """Makes the topics of a member's fresh edition. Returns False if it has caught up and nothing came in since."""
    prepare_topics(member.bound(edition), member.state, edition, bootstrap, remark)
    return edition.caught_up_at_ms is None or not has_nothing_to_do(member.route(edition, bootstrap))


def _has_caught_up(member: Found, edition: Edition, bootstrap: "Bootstrap") -> bool:
    """True if what came in since the member has caught up fits into one batch."""
    left = unread(member.project, member.state, edition, bootstrap)
    return (left or 0) <= member.pipeline.settings.max_rows_per_batch


def _say_members(made: EditionSet, planned: list[Planned], root: str) -> None:
    say(f"{root} is replayed with all that reads it, in this order: {made}")
    for each in planned[1:]:
        file = shown_path(each.source_file)
        if each.is_kept:
            remark(f"{each.pipeline.name} is taken as its live edition keeps it: {file} does not declare it any more.")


def _judged(member: Found, fresh: Edition, bootstrap: "Bootstrap") -> Judged:
    return judge(member.state, member.state.live_edition(), fresh, bootstrap, _SAMPLES)

"""A changed definition on trial: it becomes the edition's own with its first finished batch.

Only a finished batch shows that a change fits the live tables and the state. Until then the edition keeps its
definition, so that a refused change leaves a pipeline that runs.
"""

from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.events import Event, Tell


def adopting(state: PipelineState, edition: Edition, tell: Tell) -> Tell:
    """Wraps `tell` so that a trial's first batch adopts its definition."""
    if not edition.is_trial:
        return tell
    before = state.edition(edition.name)
    # A worker that was restarted after the first batch runs a definition that is the edition's own by now.
    adopted = before.version == edition.version and not state.is_changed(before, state.definition(edition))

    def tell_and_adopt(event: Event) -> None:
        nonlocal adopted
        if event["event"] == "batch" and not adopted:
            state.adopt(edition)
            adopted = True
        if event["event"] == "ended" and not adopted:
            text = (
                f"No batch went through the changed file: edition {edition.name} keeps version {before.version} as it "
                "was until one does."
            )
            tell({**event, "event": "remark", "text": text})
        tell(event)

    return tell_and_adopt

"""A changed definition on trial: it becomes the edition's own with the first batch that it has done.

Whether a change fits the live tables and the state is known only when a batch has gone through it. Until then the
edition keeps the definition that it has, so that a change that is refused leaves a pipeline that runs.
"""

from cordwood.pipelines.editions import Edition, PipelineState
from cordwood.pipelines.events import Event, Tell


def adopting(state: PipelineState, edition: Edition, tell: Tell) -> Tell:
    """`tell`, which also adopts the definition of an edition that is a trial."""
    if not edition.is_trial:
        return tell
    before = state.edition(edition.name)
    # A worker that was started again after the first batch: what it tries is the edition's own by now.
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

"""`make interop`: other people's software against real brokers, one story after another.

`python -m tests.interop_software` plays all stories, `python -m tests.interop_software streams` one of them. Each
result is kept as soon as its story is over, and docs/compatibility.md is written from the last result of each.
"""

import sys
import time
import traceback

from tests.interop_software.page import Outcome, commit, now, remember
from tests.interop_software.stage import Stage, Unavailable
from tests.interop_software.stories import STORIES, Story


def play(story: Story) -> Outcome:
    print(f"{story.name}: {story.software} {story.version}: {story.what}", flush=True)
    started_s = time.monotonic()
    try:
        with Stage() as stage:
            story.play(stage)
        result = "passed"
    except Unavailable as reason:
        result = f"skipped: {reason}"
    except Exception as failure:
        traceback.print_exc()
        result = f"failed: {failure}"
    seconds = time.monotonic() - started_s
    print(f"{story.name}: {result[:500]} ({seconds:.0f} s)", flush=True)
    return Outcome(story.version, result, round(seconds, 1), now(), commit())


def main() -> int:
    asked = sys.argv[1:]
    unknown = set(asked) - {story.name for story in STORIES}
    if unknown:
        print(f"no such story: {', '.join(sorted(unknown))}; there are {', '.join(story.name for story in STORIES)}")
        return 2
    failed = False
    for story in STORIES:
        if not asked or story.name in asked:
            outcome = play(story)
            remember({story.name: outcome})
            failed |= outcome.result.startswith("failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

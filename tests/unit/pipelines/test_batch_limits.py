"""The deadline of a batch, by a clock that the test turns."""

import pytest

from cordwood.pipelines.definition.errors import BatchStuck
from cordwood.pipelines.execution.batch_limits import BatchLimits


class Stand:
    """A batch with a deadline of a minute, looked at every two seconds."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.cancelled_at: list[float] = []
        self.waits = False
        self.limits = BatchLimits(60_000, None, clock=lambda: self.now_s)
        self.limits.begun(7)
        self.began_s = self.now_s

    def after(self, seconds: int) -> float | None:
        """How long after its begin the batch was cancelled first."""
        for _ in range(seconds // 2):
            self.now_s += 2
            self.limits.check_deadline(lambda: self.cancelled_at.append(self.now_s), lambda: self.waits)
        return self.cancelled_at[0] - self.began_s if self.cancelled_at else None


def test_a_batch_is_cancelled_at_its_deadline_and_again_until_it_ends() -> None:
    stand = Stand()
    assert stand.after(58) is None
    assert stand.after(2) == 60
    assert str(stand.limits.overdue).startswith("batch 7 has not ended within 60 s: its jobs were cancelled")
    stand.after(20)
    assert len(stand.cancelled_at) == 11
    stand.limits.ended()
    stand.after(60)
    assert len(stand.cancelled_at) == 11
    stand.limits.begun(8)
    assert stand.limits.overdue is None


def test_a_batch_that_does_not_end_when_it_is_cancelled_is_stuck() -> None:
    stand = Stand()
    with pytest.raises(BatchStuck, match="its function does not come back"):
        stand.after(120)
    assert stand.now_s - stand.began_s == 92


def test_a_batch_without_cores_has_ten_times_as_long() -> None:
    stand = Stand()
    stand.waits = True
    assert stand.after(300) is None
    stand.waits = False
    assert stand.after(40) == pytest.approx(330, abs=2)
    waiting = Stand()
    waiting.waits = True
    assert waiting.after(604) == pytest.approx(600, abs=2)

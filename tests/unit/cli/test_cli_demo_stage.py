"""The demo's verdict: one claim that does not hold fails the whole demo."""

from cordwood.cli.demo.stage import Stage


def test_the_demo_succeeds_if_every_claim_held() -> None:
    stage = Stage()
    stage.check("first", True)
    stage.check("second", True)
    assert stage.finish() == 0


def test_one_claim_that_does_not_hold_fails_the_demo() -> None:
    stage = Stage()
    stage.check("first", True)
    stage.check("second", False)
    assert stage.finish() == 1
    assert stage.failed == ["second"]

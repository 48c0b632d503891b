from cordwood.model.back_off import BackOff


def test_pauses_double_up_to_the_longest_for_however_many_failures() -> None:
    back_off = BackOff(50, 1_000)
    assert [back_off.pause_ms(failures) for failures in (0, 1, 2, 3, 5, 6, 10**9)] == [
        0,
        50,
        100,
        200,
        800,
        1_000,
        1_000,
    ]


def test_a_longest_pause_below_the_first_one_holds_for_all() -> None:
    assert BackOff(50, 20).pause_ms(1) == 20

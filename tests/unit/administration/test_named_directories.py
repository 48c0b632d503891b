"""The directory of a broker that `cluster move-dir --to` names."""

import os

import pytest

from cordwood.administration.cluster.directories import named_directory
from cordwood.model.failure import Failure

PATHS = ["/disk-1/cordwood", "/disk-2/cordwood", "/disk-2/more"]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/disk-1/cordwood", "/disk-1/cordwood"),
        ("/disk-1/../disk-2/more/", "/disk-2/more"),
        ("more", "/disk-2/more"),
        ("./more/", "/disk-2/more"),
        ("disk-2/cordwood", "/disk-2/cordwood"),
    ],
)
def test_a_directory_is_named_by_its_path_or_the_end_of_it(name: str, path: str) -> None:
    assert named_directory(name, PATHS, 1) == path


def test_a_relative_path_of_this_machine_comes_before_the_end_of_another_path() -> None:
    here = os.path.abspath("more")
    assert named_directory("more", [*PATHS, here], 1) == here


@pytest.mark.parametrize("name", ["cordwood", "wood", "/more", "/cordwood", "elsewhere", ".", ""])
def test_other_names_are_refused_with_the_paths_of_the_broker(name: str) -> None:
    with pytest.raises(Failure, match=r"is (none|the end of several) of the directories of broker 1") as refused:
        named_directory(name, PATHS, 1)
    assert "/disk-2/more" in refused.value.hint

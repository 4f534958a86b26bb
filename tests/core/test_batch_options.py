"""Options of Lopti and NTHR."""

import pytest

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.core import LoptiOptions, NTHROptions


@pytest.mark.parametrize(
    ("build", "wrong"),
    [
        (LoptiOptions, {"threshold": 1.0, "quantile": 0.0, "rare_first": "no"}),
        (LoptiOptions, {"threshold": None}),
        (NTHROptions, {"beta": -1.0, "correct_from": float("nan"), "groups_at_a_time": 1.5}),
    ],
)
def test_all_wrong_values_are_named(build, wrong):
    with pytest.raises(InvalidInputError) as raised:
        build(**wrong)
    assert [message.partition("=")[0] for message in raised.value.messages] == list(wrong)

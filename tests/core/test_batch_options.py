"""Options of Lopti."""

import pytest

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.core import LoptiOptions


@pytest.mark.parametrize(
    ("build", "wrong"),
    [
        (LoptiOptions, {"threshold": 1.0, "quantile": 0.0, "rare_first": "no"}),
        (LoptiOptions, {"threshold": None}),
    ],
)
def test_all_wrong_values_are_named(build, wrong):
    with pytest.raises(InvalidInputError) as raised:
        build(**wrong)
    assert [message.partition("=")[0] for message in raised.value.messages] == list(wrong)

"""Which rows an evaluation takes; what it does with them is tested with a model."""

import pytest

from tests.data.checked_files import row, write
from verl_trgrpo.evaluation.evaluate import load_evaluable_rows


def test_rows_with_what_the_model_would_not_see_are_refused(tmp_path):
    for column, value in (("images", [{"bytes": b"x"}]), ("videos", ["a.mp4"])):
        path = write(tmp_path / f"{column}.parquet", [row(0, **{column: None}), row(1, **{column: value})])
        with pytest.raises(
            ValueError, match=rf"{column}\.parquet: rows have {column}, which the model would not be shown"
        ):
            load_evaluable_rows([path], None, 0)
    path = write(tmp_path / "text.parquet", [row(0, images=[]), row(1, images=None)])
    assert len(load_evaluable_rows([path], None, 0)[0]) == 2

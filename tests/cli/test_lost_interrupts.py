"""A Ctrl-C that Python loses, because it comes while garbage is collected, stops the commands all the same."""

import gc
import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_trgrpo.cli.main import main
from verl_trgrpo.common.signals import Interrupt
from verl_trgrpo.data import check, decontaminate  # noqa: F401  (imports are slow while garbage is collected so often)
from verl_trgrpo.data.schema import arrow_schema, build_row

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def lost_interrupt():
    """SIGINT in the first garbage collection after a command began to listen; what is raised there, Python drops."""
    sent = []

    def collecting(phase, _):
        if phase == "start" and not sent and isinstance(signal.getsignal(signal.SIGINT), Interrupt):
            sent.append(phase)
            gc.set_threshold(*threshold)
            signal.raise_signal(signal.SIGINT)

    threshold = gc.get_threshold()
    gc.callbacks.append(collecting)
    gc.set_threshold(5)  # there is one soon
    yield sent
    gc.set_threshold(*threshold)
    gc.callbacks.remove(collecting)


def write(path, label):
    rows = [
        build_row(
            data_source="math",
            prompt=[{"role": "user", "content": f"Which number is {label} {index}?"}],
            ability="math",
            ground_truth=str(index),
            index=index,
            split="train",
            extra_info={},
        )
        for index in range(50)
    ]
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema([])), path)


@pytest.mark.parametrize(
    "words", ["check a.parquet b.parquet --no-rewards", "decontaminate a.parquet --against b.parquet"]
)
def test_data_commands(tmp_path, monkeypatch, capsys, lost_interrupt, words):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        write(tmp_path / f"{name}.parquet", name)
    assert main(["data", *words.split()]) == 130
    assert lost_interrupt
    assert "interrupted; nothing was changed" in capsys.readouterr().err

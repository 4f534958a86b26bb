"""Every run of every shipped study is a command that its trainer takes."""

from pathlib import Path

import pytest
import tyro

from studies.comparisons.run import Inputs, run_command
from studies.comparisons.study import read_study
from tests.conftest import composed
from verl_trgrpo.checks.settings import type_findings
from verl_trgrpo.checks.view import RunView

FOLDER = Path(__file__).parents[2] / "studies" / "comparisons"
STUDIES = {path.stem: read_study(path) for path in sorted(FOLDER.glob("*.yaml"))}
# Files and a directory that are there, whatever they are.
INPUTS = Inputs(Path(__file__), Path(__file__), str(FOLDER))
ARMS = [(name, arm) for name, study in STUDIES.items() for arm in study.arms]


@pytest.mark.parametrize(("name", "arm"), [(name, arm) for name, arm in ARMS if STUDIES[name].trainer == "script"])
def test_the_trainer_takes_the_flags(name, arm):
    from studies import trainer

    study = STUDIES[name]
    script, *flags = run_command(study, INPUTS, arm, 7, Path("/run"))
    options = tyro.cli(trainer.Options, args=flags, config=(tyro.conf.FlagCreatePairsOff,))
    assert Path(script).is_file() and options.seed == 7 and options.resume
    settings = {**study.settings, **study.arms[arm]}
    assert {name: getattr(options, name) for name in settings} == settings
    options.objective()


def test_the_overrides_of_verl_compose_and_have_sound_types():
    """Each study once: its arms differ by algorithms, which test_registration composes, and by values."""
    through_verl = [study for study in STUDIES.values() if study.trainer == "verl"]
    assert through_verl
    for study in through_verl:
        for arm, settings in study.arms.items():
            words = run_command(study, INPUTS, arm, 7, Path("/run"))
            run = composed(words[words.index(study.config) + 1 :], study.config)
            assert run.config.data.seed == 7 and run.choices["algorithm"] == settings["algorithm"]
        assert type_findings(RunView(run)) == []

"""A few lines of YAML with aliases can represent gigabytes: each door to a user's YAML refuses them before they are expanded."""

import pytest
import yaml

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.common.foreign import ForeignFileError, load_yaml
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.run_directory import CONFIG_FILE, read_config


def bomb(depth):
    """Return YAML whose last key represents 9 ** depth words."""
    lines = ["a0: &a0 [lol]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, depth + 1))]
    return "\n".join(lines) + "\n"


def of_settings(directory, text):
    path = directory / "settings.yaml"
    path.write_text(text)
    return load_yaml(path)


def of_run(directory, text):
    (directory / CONFIG_FILE).write_text(text)
    return read_config(directory)


def of_recipe(directory, text):
    path = directory / "recipe.yaml"
    path.write_text(f"defaults:\n  - trgrpo_trainer\n  - _self_\n{text}")
    return compose(path)


DOORS = [of_settings, of_run, of_recipe]


@pytest.mark.parametrize("door", DOORS)
def test_aliases_are_refused_after_the_first_one(tmp_path, door, monkeypatch):
    events, parse = [], yaml.parse

    def counted(*arguments):
        for event in parse(*arguments):
            events.append(event)
            yield event

    monkeypatch.setattr(yaml, "parse", counted)
    looked_at = []
    for depth in (2, 4, 8, 100):
        events.clear()
        with pytest.raises((ForeignFileError, InvalidInputError), match=r"has YAML aliases.*write the values"):
            door(tmp_path, bomb(depth))
        looked_at.append(len(events))
    assert len({*looked_at}) == 1


@pytest.mark.parametrize("door", DOORS)
def test_a_star_that_is_no_alias_passes(tmp_path, door):
    config = door(
        tmp_path, "custom_pattern: 'data/*.parquet'\n" if door is not of_recipe else "# data/*.parquet, 2 * 3\n"
    )
    assert config is not None

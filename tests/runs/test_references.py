"""References of a recorded configuration: those of veRL are resolved, those that lead to gigabytes are refused."""

import pytest
from omegaconf import OmegaConf

from tests.launch.launching import composed
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs.references import check_references, inert
from verl_trgrpo.runs.run_directory import read_config, write_config


def chain(form, links, copies):
    """Return values each of which has `copies` references to the one before, and the key of the last."""
    values = {"z0": "x" * 10}
    for number in range(1, links):
        values[f"z{number}"] = form(f"z{number - 1}", copies)
    return values | {"actor_rollout_ref": {"model": {"path": f"${{z{links - 1}}}"}}}


FORMS = {
    "text": lambda name, copies: f"${{{name}}}" * copies,
    "list": lambda name, copies: [f"${{{name}}}"] * copies,
    "mapping": lambda name, copies: {f"k{number}": f"${{{name}}}" for number in range(copies)},
    "relative": lambda name, copies: f"${{.{name}}}" * copies,
    "select": lambda name, copies: f"${{oc.select:{name}}}" * copies,
    "default": lambda name, copies: f"${{oc.select:gone,${{{name}}}}}" * copies,
    "brackets": lambda name, copies: f"${{[{name}]}}" * copies,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("links", "copies"), [(30, 10), (8, 40), (200, 1), (40, 2)])
def test_references_that_stand_for_gigabytes_are_refused(tmp_path, form, links, copies):
    OmegaConf.save(OmegaConf.create(chain(FORMS[form], links, copies)), tmp_path / "config.yaml")
    with pytest.raises(InvalidInputError, match=r"config\.yaml is damaged \(z\d+.*: its references"):
        read_config(tmp_path)


@pytest.mark.parametrize("content", [{"a": "${a}"}, {"a": "${b}", "b": "${a}"}, {"a": {"b": "${a}"}}, {"a": ["${a}"]}])
def test_circles_are_refused(content):
    with pytest.raises(ValueError, match=r"^[ab][.\w]*: .*in a circle"):
        check_references(OmegaConf.create(content))


@pytest.mark.parametrize(
    "key", ["${oc.select:${a}}", "${oc.select:'z9'}", "${oc.select:z${a}}", "${oc.env:HOME}", "${${a}}"]
)
def test_a_reference_whose_key_is_not_written_out_stays_text(key):
    config = inert(OmegaConf.create({"a": "z9", "z9": "x", "b": key}))
    check_references(config)
    assert config.b == key.replace("${", "$ {")


@pytest.mark.parametrize("form", FORMS)
def test_references_as_configurations_have_them_are_resolved(tmp_path, form):
    write_config(OmegaConf.create(chain(FORMS[form], 4, 3) | {"actor_rollout_ref": {}}), tmp_path)
    found = read_config(tmp_path)
    assert "x" * 10 in str(OmegaConf.to_container(found, resolve=True)["z3"])
    write_config(composed(tmp_path).config, tmp_path)
    assert read_config(tmp_path).trainer.default_local_dir == str(tmp_path)

"""Sections that are empty, keys that were taken out, and files of another form than a name: what would end every other look.

Needs neither veRL's code nor torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_plain_yaml, first_line
from verl_trgrpo.runs.checks.files import DATA, MODEL, missing_files
from verl_trgrpo.runs.compose import OWN_CONFIGS, ComposedRun, defaults_of, flat, verl_defaults

_POLICY_LOSS = "actor_rollout_ref.actor.policy_loss"
# What is read before anything else: one text each, or a text or a list of them.
_TEXTS = {
    MODEL: "a model directory or a hub name",
    "trainer.default_local_dir": "a directory",
    "data.prompt_key": "the name of a column",
}
TEXT_LISTS = {**dict.fromkeys(DATA, "a file or a list of files"), "trainer.logger": "a name or a list of names"}


def section_findings(config: DictConfig, choices: Mapping[str, str]) -> tuple[list[Finding], DictConfig]:
    """Complaints about sections and keys that veRL needs and a run lacks, and the configuration with defaults in their place.

    Args:
        config: of the run.
        choices: its options of groups, which decide what veRL has.
    """
    mended = config.copy()
    OmegaConf.set_struct(mended, False)
    defaults = defaults_of(choices)
    findings = _put_back(mended, verl_defaults(choices), defaults, "")
    return findings + _shaping_findings(mended, defaults) + _text_findings(mended, defaults), mended


def early_findings(run: ComposedRun, need_files: bool = True) -> list[Finding]:
    """What can be said before veRL and torch are imported, which takes many seconds."""
    findings, config = section_findings(run.config, run.choices)
    return findings + beside(findings, missing_files(config, need_files))


def beside(findings: list[Finding], more: list[Finding]) -> list[Finding]:
    """Those of `more` that are about other keys and sections: where a default stands in, it says nothing about the run."""
    seen = tuple(f"{finding.where}." for finding in findings)
    return [finding for finding in more if not f"{finding.where}.".startswith(seen)]


def _put_back(node: DictConfig, required: DictConfig, defaults: Any, prefix: str) -> list[Finding]:
    """Put defaults in place of what is empty or missing in a node; returns a complaint about each, one for many of a section."""
    findings, lacking = [], []
    name: Any
    for name in required:
        key, child, wanted = f"{prefix}{name}", node._get_node(name), required._get_node(name)
        # Asked by node: `name in defaults` would resolve references, which may import torch.
        own = defaults._get_node(name) if isinstance(defaults, DictConfig) else None
        default = wanted if own is None else own
        if child is None:
            if not wanted._is_none() and not wanted._is_missing():  # type: ignore[union-attr]
                lacking.append(name)
            node[name] = default
        elif isinstance(wanted, DictConfig) and len(wanted) and not child._is_interpolation():  # type: ignore[union-attr]
            if isinstance(child, DictConfig) and not (child._is_none() or child._is_missing()):
                findings += _put_back(child, wanted, default, f"{key}.")
                continue
            state = "is empty" if child._is_none() or child._is_missing() else f"is {child}"  # type: ignore[union-attr]
            remedy = "remove that line, or give it keys"
            findings.append(Finding.error(key, f"{key} {state}, where veRL has {_contents(required, name)}; {remedy}"))
            node[name] = default
    if len(lacking) == 1:
        key = f"{prefix}{lacking[0]}"
        message = f"{key} was taken out, where veRL has {_contents(required, lacking[0])}; give it a value instead"
        findings.append(Finding.error(key, message))
    elif lacking:
        section, names = prefix[:-1] or "the configuration", ", ".join(map(str, lacking[:4]))
        more = f" and {len(lacking) - 4} more" if len(lacking) > 4 else ""
        findings.append(
            Finding.error(prefix[:-1], f"{section} lacks {names}{more}, which veRL has; do not take them out")
        )
    return findings


def _shaping_findings(config: DictConfig, defaults: DictConfig) -> list[Finding]:
    """A complaint about a shaping's name in the place of its section; the default is put there."""
    key = f"{_POLICY_LOSS}.shaping"
    section, default = OmegaConf.select(config, _POLICY_LOSS), OmegaConf.select(defaults, key)
    given = section._get_node("shaping") if isinstance(section, DictConfig) else None
    if default is None or given is None or OmegaConf.is_dict(given) or given._is_interpolation():
        return []
    OmegaConf.update(config, key, default)
    name = given if (OWN_CONFIGS / "shaping" / f"{given}.yaml").is_file() else default.name
    shown = "null" if given._is_none() else given
    return [
        Finding.error(key, f"{key}={shown} is not a section; a shaping is the option of a group: write shaping={name}")
    ]


def _contents(required: DictConfig, name: Any) -> str:
    wanted = required._get_node(name)
    if isinstance(wanted, DictConfig):
        return f"a section with keys such as {', '.join(list(map(str, wanted))[:4])}"
    return str(OmegaConf.to_container(required, resolve=False)[name])  # type: ignore[call-overload, index]


def _text_findings(config: DictConfig, defaults: DictConfig) -> list[Finding]:
    """Complaints about texts that are none; in place, defaults are put there."""
    findings = []
    for key, wanted in {**_TEXTS, **TEXT_LISTS}.items():
        try:
            value = OmegaConf.select(config, key)
            plain = value
            if OmegaConf.is_config(value):
                plain = OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
            problem = f"is not {wanted}; give one"
        except OmegaConfBaseException as reason:
            value, problem = flat(config)[key], f"cannot be resolved ({first_line(reason)}); correct the reference"
        else:
            texts = plain if isinstance(plain, list) and key in TEXT_LISTS else [plain]
            optional = plain is None and key in TEXT_LISTS
            if optional or all(isinstance(text, str) and text for text in texts):
                continue
        findings.append(Finding.error(key, f"{key}={as_plain_yaml(value)} {problem}"))
        OmegaConf.update(config, key, OmegaConf.select(defaults, key))
    return findings

"""The plugin as an installed distribution: entry points, registries and configuration groups in fresh processes."""

import pickle
import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from verl.trainer.ppo import core_algos
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import PolicyLossConfig

from tests.conftest import composed
from tests.fresh import run_fresh
from verl_trgrpo.checks.algorithm import drift_findings, loss_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.core import (
    DifficultyOptions,
    HighEntropyClip,
    LoptiOptions,
    available_shapings,
    make_shaping,
)
from verl_trgrpo.runs.compose import algorithm_settings
from verl_trgrpo.runs.keys import flat
from verl_trgrpo.verl_plugin.loss_names import WEIGHTED

GRPO = {
    "loss_mode": "vanilla", "estimator": "grpo", "divided_by_std": True, "aggregation": "token-mean", "entropy": False,
    # Bounds of the ratio or, for DPPO, of the change of p.
    "clip": (0.2, 0.2, 3.0),
}  # fmt: skip
TR_GRPO = GRPO | {
    "loss_mode": "tr_grpo", "shaping": make_shaping("sigmoid"), "placement": "outside", "kl": "plain", "normalize": "none",
    "prob_source": "current",
}  # fmt: skip
CLIP_HIGHER = {"clip": (0.2, 0.28, 3.0)}
# verl-recipe's dapo/run_dapo_qwen2.5_32b.sh, and all scripts of AR-Lopti.
DAPO_SCRIPT, AR_LOPTI_SCRIPTS = {"clip": (0.2, 0.28, 10.0)}, {"clip": (0.2, 0.24, 10.0)}
DPPO_TV, DPPO_KL = {"clip": (0.15, 0.15, 1e4)}, {"clip": (0.05, 0.05, 1e4)}


def shaped(name, **changes):
    return TR_GRPO | {"shaping": make_shaping(name)} | changes


ALGORITHMS = {
    "grpo": GRPO,
    "dr_grpo": GRPO | {"divided_by_std": False, "aggregation": "seq-mean-token-sum-norm"},
    "dapo_clip": GRPO | CLIP_HIGHER,
    "dapo": GRPO | DAPO_SCRIPT,
    "reinforce_rej": GRPO | {"estimator": "reinforce_rej"},
    "ha_dw": GRPO | {"estimator": "ha_dw"},
    "raft": GRPO | {"estimator": "raft"},
    "maxrl": GRPO | {"estimator": "maxrl"},
    "tepo": GRPO | {"loss_mode": "gspo", "clip": (3e-4, 4e-4, 3.0)},
    "w_reinforce": GRPO | {"estimator": "w_reinforce"},
    "dppo_tv": GRPO | {"loss_mode": "dppo_tv"} | DPPO_TV,
    "dppo_kl": GRPO | {"loss_mode": "dppo_kl"} | DPPO_KL,
    "gspo": GRPO | {"loss_mode": "gspo", "clip": (3e-4, 4e-4, 3.0), "aggregation": "seq-mean-token-mean"},
    "sapo": GRPO | {"loss_mode": "sapo", "aggregation": "seq-mean-token-mean"},
    "cispo": GRPO | {"loss_mode": "cispo", "clip": (10.0, 0.2, 3.0)},
    "clip_cov": GRPO | {"loss_mode": "clip_cov", "clip": (1.0, 1.0, 3.0)},
    "kl_cov": GRPO | {"loss_mode": "kl_cov"},
    "gpg": GRPO | {"loss_mode": "gpg", "estimator": "gpg"},
    "reinforce": shaped("uniform", loss_mode="tr_gpg"),
    "dro": GRPO | {"loss_mode": "dro"},
    "gmpo": GRPO | {"loss_mode": "geo_mean", "clip": (0.4, 0.4, 3.0)},
    **{
        name: GRPO | {"estimator": name}
        for name in ("rloo", "opo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
    },
    "grpo_passk": GRPO | {"estimator": "grpo_passk", "divided_by_std": False},
    "tr_grpo": TR_GRPO,
    "grpo_sg": TR_GRPO,
    "tr_grpo_published": TR_GRPO | {"placement": "inside", "kl": "literal"},
    "tr_grpo_token_mean": TR_GRPO | {"normalize": "token_mean"},
    "tr_grpo_reverse": TR_GRPO | {"shaping": make_shaping("sigmoid", reverse=True)},
    "tr_dapo": TR_GRPO | DAPO_SCRIPT,
    "advantage_reweighting_current": shaped("linear", **AR_LOPTI_SCRIPTS),
    "advantage_reweighting_old": shaped("linear", prob_source="old", **AR_LOPTI_SCRIPTS),
    "aspo": shaped("uniform", loss_mode="aspo"),
    "top_entropy": shaped("top_entropy", entropy=True, normalize="token_mean"),
    "stapo": shaped("stapo", entropy=True, normalize="token_mean", **CLIP_HIGHER),
    "random_subset": shaped("random_subset", normalize="token_mean"),
    "cppo": shaped("cppo", clip=(1.0, 1e4, 1e4)),
    "taco": shaped("taco", entropy=True, clip=(0.2, 0.28, 10.0)),
    "rsi": shaped("rsi", entropy=True),
    "ipo_mask": shaped("ipo_mask", clip=(1.0, 1e4, 1e4)),
    "fipo": shaped("fipo", clip=(0.2, 0.28, 10.0)),
    "stare": shaped("stare", entropy=True, clip=(0.2, 0.28, 10.0)),
    "gtpo": shaped("gtpo", entropy=True),
    "aspo_entropy_clip": shaped(
        "uniform", loss_mode="aspo", entropy=True, high_entropy_clip=HighEntropyClip(0.8, 0.4, 0.4)
    ),
    "lopti": shaped("uniform", lopti=LoptiOptions(threshold=0.4), **AR_LOPTI_SCRIPTS),
    "ar_lopti": TR_GRPO
    | {"shaping": make_shaping("linear", alpha=0.3), "prob_source": "old", "lopti": LoptiOptions()}
    | AR_LOPTI_SCRIPTS,
}
LOSS = "actor_rollout_ref.actor.policy_loss"


def compose(name, *overrides):
    return composed(overrides, name).config


def actor_of(config):
    # veRL fills these two in from the command line of every recipe.
    config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu = 1
    config.actor_rollout_ref.rollout.n = 8
    return omega_conf_to_dataclass(config.actor_rollout_ref.actor)


@pytest.mark.parametrize("first", ["ppo_loss", "config", "actor", "lopti"])
def test_one_import_registers_everything_whichever_comes_first(first):
    """These modules import veRL, which imports the plugin, before they are complete; `import verl` is the easy case."""
    printed = run_fresh(
        f"import verl_trgrpo.verl_plugin.{first}\n"
        "from verl.trainer.ppo.core_algos import get_policy_loss_fn, get_adv_estimator_fn\n"
        "get_policy_loss_fn('tr_grpo'), get_policy_loss_fn('aspo')\n"
        "for name in ('tr_grpo', 'reinforce_rej', 'ha_dw'): get_adv_estimator_fn(name)\n"
        "from verl.workers import engine_workers\nprint('WRAPPED', hasattr(engine_workers.ppo_loss, '__wrapped__'))"
    )
    assert "could not register" not in printed.error and "WRAPPED True" in printed.out


def test_a_program_that_only_imports_verl_does_not_pay_for_the_losses():
    printed = run_fresh(
        "import sys, verl\nprint([name for name in ('verl.trainer.ppo.core_algos', 'verl_trgrpo.core') if name in sys.modules])"
    )
    assert printed.out == "[]\n"


def test_a_broken_plugin_is_not_silent():
    """veRL logs a failing plugin at DEBUG level; this one speaks up."""
    printed = run_fresh(
        "import sys\nsys.modules['verl_trgrpo.core'] = None\nimport verl.trainer.ppo.core_algos\nprint('DONE')"
    )
    assert "DONE" in printed.out and "verl-trgrpo doctor" in printed.error


@pytest.mark.parametrize(
    ("algorithm", "stock"),
    [*((name, False) for name in ALGORITHMS), *((name, True) for name in ("tr_grpo_published", "dr_grpo", "tr_dapo"))],
)
def test_the_switch_on_own_and_stock_configuration(algorithm, stock):
    source, word = ("ppo_trainer", f"+algorithm={algorithm}") if stock else ("trgrpo_trainer", f"algorithm={algorithm}")
    run = composed([word], source)
    config, actor = run.config, actor_of(run.config)
    found = {
        "loss_mode": actor.policy_loss.loss_mode,
        "estimator": config.algorithm.adv_estimator,
        "divided_by_std": config.algorithm.norm_adv_by_std_in_grpo,
        "aggregation": actor.loss_agg_mode,
        "entropy": actor.calculate_entropy,
        "clip": (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c),
    }
    weighting = ALGORITHMS[algorithm].keys() - found.keys()
    assert found | {name: getattr(actor.policy_loss, name) for name in weighting} == ALGORITHMS[algorithm]
    assert weighting or not hasattr(actor.policy_loss, "shaping")
    view = RunView(run)
    findings = [] if algorithm == "tr_grpo_published" else [*drift_findings(view), *loss_findings(view)]
    assert findings == [], "but for the published placement, which is a warning"


def test_every_algorithm_and_every_shaping_has_a_file():
    files = resources.files("verl_trgrpo.config")
    assert {*ALGORITHMS} == {file.name.removesuffix(".yaml") for file in (files / "algorithm").iterdir()}
    assert {*available_shapings(), "custom"} == {
        file.name.removesuffix(".yaml") for file in (files / "shaping").iterdir()
    }


def test_a_word_with_the_weights_of_another_needs_no_word_of_its_own():
    """``algorithm=ha_dw shaping=sigmoid`` is that run. TR-GRPO itself and the README's combination have words."""

    def point(word, *options):
        settings = dict(algorithm_settings(word, *options))
        mode = settings[f"{LOSS}.loss_mode"]
        return settings | {f"{LOSS}.loss_mode": WEIGHTED.get(mode, mode)}

    weights = {word: point(word).get(f"{LOSS}.shaping.name") for word in ALGORITHMS}
    products = {
        word: other
        for word, shaping in weights.items()
        for other in ALGORITHMS
        if shaping and weights[other] is None and other in (word, word.partition("_")[2])
        if point(other, f"shaping={shaping}", "normalize=none") == point(word)
    }
    assert products == {"tr_grpo": "grpo", "tr_dapo": "dapo"}


# The others are composed with an algorithm, above.
ALONE = {*available_shapings()} - {row["shaping"].name for row in ALGORITHMS.values() if "shaping" in row}


@pytest.mark.parametrize(("name", "algorithm"), [*((name, "aspo") for name in sorted(ALONE)), ("top_entropy", "gspo")])
def test_any_shaping_by_one_word(name, algorithm):
    actor = actor_of(compose("trgrpo_trainer", f"algorithm={algorithm}", f"shaping={name}", "normalize=token_mean"))
    assert actor.policy_loss.loss_mode == {"aspo": "aspo", "gspo": "tr_gspo"}[algorithm]
    assert (actor.policy_loss.shaping, actor.policy_loss.normalize) == (make_shaping(name), "token_mean")
    assert actor.calculate_entropy is (name == "top_entropy")


PAGE = Path(__file__).parents[2] / "docs/algorithms.md"


def settings_table():
    """What each word composes, words with the same settings in one row."""
    rows = {}
    for word in ALGORITHMS:
        config = compose("trgrpo_trainer", f"algorithm={word}")
        actor = config.actor_rollout_ref.actor
        loss = actor.policy_loss
        shaping = loss.get("shaping") or {}
        weights = " ".join(
            [shaping.get("name", "none")]
            + ["reverse"] * shaping.get("reverse", False)
            + [loss[key] for key, usual in WEIGHTING.items() if shaping and loss[key] != usual]
        )
        clip = ", ".join(f"{value:g}" for value in (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c))
        row = (loss.loss_mode, config.algorithm.adv_estimator, weights, clip, actor.loss_agg_mode)
        rows.setdefault(row, []).append(f"`{word}`")
    head = ["| `algorithm=` | loss | estimator | weights | clip | aggregation |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *(f"| {', '.join(words)} | {' | '.join(row)} |" for row, words in rows.items())])


WEIGHTING = {"placement": "outside", "prob_source": "current", "normalize": "none"}


def test_the_table_of_settings_is_what_the_words_compose():
    written = PAGE.read_text().partition("<!-- settings: begin -->")[2].partition("<!-- settings: end -->")[0].strip()
    assert written == settings_table(), f"write into {PAGE}:\n{settings_table()}"


def kind_of(word):
    """What an algorithm's file changes of GRPO, in the words of the page of all algorithms."""
    settings = algorithm_settings(word)
    changes = {
        "loss": settings[f"{LOSS}.loss_mode"] not in ("vanilla", "tr_grpo"),
        "estimator": settings["algorithm.adv_estimator"] != "grpo",
        "weights": settings.get(f"{LOSS}.shaping.name", "uniform") != "uniform",
        "update": any(key.startswith(f"{LOSS}.lopti.") for key in settings),
    }
    return ", ".join(kind for kind, changed in changes.items() if changed) or "settings"


def test_the_page_of_all_algorithms_says_what_their_files_say():
    lines = PAGE.read_text().partition("\n## All algorithms")[2].partition("\n##")[0].splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| `") and not line.startswith("| `algorithm=`")]
    words = {word: row for row in rows for word in re.findall(r"`(\w+)`", row[0])}
    assert {*words} == {*ALGORITHMS}
    for word, (_, kind, source, *_) in words.items():
        file = resources.files("verl_trgrpo.config") / f"algorithm/{word}.yaml"
        assert kind == kind_of(word), word
        assert source.partition(",")[0] in file.read_text(), word


WEIGHTED_WORDS = {"gspo": "tr_gspo", "dppo_kl": "tr_dppo_kl", "dapo": "tr_grpo", "rloo": "tr_grpo"}


@pytest.mark.parametrize("word", WEIGHTED_WORDS)
def test_a_shaping_gives_weights_to_any_algorithm_and_changes_nothing_else(word):
    with_weights = compose("ppo_trainer", f"+algorithm={word}", "shaping=sigmoid")
    without = compose("ppo_trainer", f"+algorithm={word}")
    actor, stock = actor_of(with_weights), actor_of(without)
    assert actor.policy_loss.shaping == make_shaping("sigmoid") and actor.policy_loss.normalize == "none"
    assert (actor.policy_loss.loss_mode, stock.policy_loss.loss_mode) == (
        WEIGHTED_WORDS[word],
        ALGORITHMS[word]["loss_mode"],
    )
    assert type(stock.policy_loss) is PolicyLossConfig
    settings, stock_settings = flat(with_weights), flat(without)
    changed = {key for key in settings | stock_settings if settings.get(key) != stock_settings.get(key)}
    assert {key.removeprefix(f"{LOSS}.").partition(".")[0] for key in changed if key.startswith(LOSS)} == {
        "_target_", "shaping", "placement", "prob_source", "normalize", "kl",
    }  # fmt: skip
    outside = {key for key in changed if not key.startswith(LOSS)}
    assert outside == {"actor_rollout_ref.actor.calculate_entropy", "trainer.experiment_name"}
    assert actor.calculate_entropy is False


def test_options_of_two_passes_change_the_worker_that_gets_them():
    """Built or sent there; runs without them keep veRL's worker."""
    without, sent = (
        pickle.dumps(actor_of(compose("trgrpo_trainer", f"algorithm={word}")).policy_loss) for word in ("grpo", "lopti")
    )
    printed = run_fresh(
        f"import pickle\npickle.loads({without!r})\nfrom verl.workers.engine_workers import TrainingWorker\n"
        "wrapped = lambda: hasattr(TrainingWorker.train_mini_batch, 'has_lopti')\nbefore = wrapped()\n"
        f"pickle.loads({sent!r})\nprint('WRAPPED', before, wrapped())"
    )
    assert "WRAPPED False True" in printed.out


def test_a_shaping_of_your_own():
    own = "tests.core.test_shaping"
    config = compose(
        "trgrpo_trainer", "shaping=custom", f"{LOSS}.shaping.name={own}.cosine", f"+{LOSS}.shaping.floor=0.3"
    )
    assert actor_of(config).policy_loss.shaping.parameters == {"floor": 0.3}
    actor = actor_of(compose("ppo_trainer", "+algorithm=tr_grpo", "shaping=custom", f"{LOSS}.shaping.name={own}.stapo"))
    assert actor.policy_loss.shaping.inputs == ("probs", "entropy", "advantages")
    assert actor.calculate_entropy is True


def test_the_estimator_s_node_is_what_it_takes_and_is_checked_when_it_is_built():
    config = compose("trgrpo_trainer", "algorithm=ha_dw").algorithm
    assert omega_conf_to_dataclass(config).ha_dw == DifficultyOptions()
    rewards = torch.ones(4, 2)
    arguments = {"token_level_rewards": rewards, "response_mask": rewards, "index": np.array(list("aabb"))}
    assert not core_algos.get_adv_estimator_fn("ha_dw")(**arguments, config=config)[0].any()
    with pytest.raises(Exception, match="window=0"):
        omega_conf_to_dataclass(compose("trgrpo_trainer", "algorithm=ha_dw", "algorithm.ha_dw.window=0").algorithm)

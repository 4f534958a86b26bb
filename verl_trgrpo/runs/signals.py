"""The states of a quantity that make a run sick: one row for each (docs/health.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_trgrpo.runs.history import ACCURACY, REWARDS, TIMES, VALIDATION
from verl_trgrpo.runs.metrics import CUT_OFF_SHARE, EQUAL_GROUPS, MEAN_REWARD, NO_ANSWER, TRAIN_ACCURACY, WEIGHT_STD


@dataclass(frozen=True)
class Signal:
    """A state of a quantity that somebody should look at: one row of the table.

    Args:
        name: in a few words.
        metrics: regular expression of the metrics that show the quantity; each is judged alone.
        means: what the state means.
        remedy: what to do; {resume} are the overrides that go back to a sound step, {slower} sets half of the learning rate.
        unit: of the change: ``factor``, ``distance`` (a factor of the distance from 1) or ``share``, against the start; ``part``
            of what had been reached. Without a change: ``finite``, ``repeat`` (the value before), ``bound``.
        change: smallest one that matters; the bound itself.
        falls: smaller is worse.
        normal: range to which the start is clipped, by the definition of the metric.
        excuses: methods of the run that return by how much larger a change they allow.
        lasts: values that make a level at least, if more than a unit needs.
        back: steps back to the last weights that are sound. Rollouts of a step show those that the update before it made, so 2;
            1 for what the update of the step itself logs, and for a validation, which follows it.
        note: whether it is reported although nothing is wrong.
        machine: whether it shows the machine and not the learning: it is reported, and the run is not sick.
        quantity: what is not judged in a run that logs no metric of the rows with these words; "" where a sound run may lack it.
    """

    name: str
    metrics: str
    means: str
    remedy: str
    unit: str = "factor"
    change: float = 0.0
    falls: bool = False
    normal: tuple[float, float] = (0.0, math.inf)
    excuses: tuple[str, ...] = ()
    lasts: int = 0
    back: int = 2
    note: bool = False
    machine: bool = False
    quantity: str = ""


_SCORED = r"critic/(score|rewards?|acc|advantages|returns)/.*|val-.*"
_UPDATED = r"actor/.*|critic/(vf_|grad_norm|vpred|kl).*"
_PARTS = r"critic/(reward/.+|acc)/mean|val-aux/.+/(acc|reward|score|f1|em|format\w*)/mean@\d+"
_READ = "read responses with their rewards: `verl-trgrpo preview`"
_SLOWER = "{slower} {resume}"
# Meaning and remedy of the rows that share them.
_CLIPPED = ("updates are clipped to noise", _SLOWER)
_AWAY = ("the policy runs away from the one it is compared with", _SLOWER)
_APART = ("tokens are sampled from another policy than the one that is trained",
          "compare weights and precision of both, or set algorithm.rollout_correction.rollout_is=token")  # fmt: skip
_ROLLOUT = "rollout against training (actor_rollout_ref.rollout.calculate_log_probs=True)"
_CUT = (
    "the reward measures the length limit",
    f"{_READ}; if they are right, raise data.max_response_length, or {{resume}}",
)
_FELL = ("the run had reached a higher level", _SLOWER)

# An element of a gradient below Adam's eps is divided by eps, so its update vanishes with it: a norm below does so for all.
_ADAM_EPS = 1e-8
# Half of the distance between numbers of float32 near 1/64, a usual size of weights: a smaller update is rounded away.
_SPACING = 2.0**-31

# A response that is cut off, aborted or without an answer has a reward that says nothing of its content. Where most responses
# of a batch are such, so is the median one, and mean and spread of the rewards measure the limit.
_MOST = 0.5
# Without one right answer among N in each of so many steps, fewer than 3 in 30 N are right (rule of three, 95 %).
_RIGHT_IN = 30

# Of the rows of one name, that which stands and began first is reported.
SIGNALS = (
    Signal("reward is not finite", _SCORED, "its group has no advantages", "let the reward function return a number", "finite"),
    Signal("update is not finite", _UPDATED, "veRL skips such an update", _SLOWER, "finite", back=1),
    Signal("metric is not finite", rf"(?!({_SCORED}|{_UPDATED})$).*", "one of its inputs is not finite, or it overflows", _READ,
           "finite"),
    Signal("gradient is 0", r"actor/grad_norm|critic/advantages/max", "advantages are 0, or nothing is trained",
           f"{_READ}; if rewards differ, look at the lora and freeze settings", "bound", _ADAM_EPS, True, excuses=("solved",)),
    Signal("nothing is left to learn", r"actor/grad_norm|critic/advantages/max", "all answers are right, and the gradient is 0",
           "end the run, or choose harder prompts", "bound", _ADAM_EPS, True, excuses=("unsolved",), note=True),
    Signal("learning rate is 0", r"actor/lr", "updates change nothing", "set actor_rollout_ref.actor.optim.lr and its schedule",
           "bound", 0.0, True, quantity="learning rate"),
    Signal("learning rate changes nothing", r"actor/lr", "an update is smaller than the spacing of the weights",
           "set actor_rollout_ref.actor.optim.lr=1e-6", "bound", _SPACING, True, excuses=("rate_was_larger",)),
    Signal("importance weights fail", r"rollout_corr/rollout_is_eff_sample_size", "their variance is above their squared mean",
           _APART[1], "bound", 0.5, True, quantity=_ROLLOUT),
    Signal("importance weights fail", r"rollout_corr/rollout_is_mean", "their mean is 1 by definition: most of it is cut",
           _APART[1], "bound", 0.5, True, quantity=_ROLLOUT),
    Signal("KL is negative", r"actor/(kl_loss|ppo_kl|reward_kl_penalty)|critic/kl|rollout_corr/(kl|k3_kl)",
           "a divergence is at least 0: the samples are from another policy",
           "compare the weights and the precision of both policies", "bound", -0.05, True),
    Signal("metric repeats itself", rf"{MEAN_REWARD}|actor/(grad_norm|entropy)", "new samples hardly give exactly the same value",
           f"{_READ}; look whether rollouts and updates still run", "repeat", excuses=("solved",)),
    Signal("all groups are equal", EQUAL_GROUPS, "equal rewards have advantages of 0, so nothing is learned",
           f"{_READ}; if they are right, choose other prompts", "bound", 0.9, excuses=("solved",),
           quantity="groups with equal rewards"),
    Signal("weights are all equal", WEIGHT_STD, "this run is GRPO with a constant factor",
           "choose another shaping (docs/shapings.md), or more updates per batch for one that compares with the old policy",
           "bound", 1e-3, True),
    Signal("gradient explodes", r"(actor|critic)/grad_norm|critic/vf_loss", *_CLIPPED, change=6.0, back=1),
    Signal("gradient is far above its bound", r"actor/grad_norm", "grad_clip leaves less than a hundredth of it",
           "look at loss_agg_mode and the scale of the rewards", change=100.0, normal=(1.0, 1.0), excuses=("improves", "later"),
           lasts=30, quantity="gradient"),
    Signal("loss explodes", r"actor/(pg_)?loss", *_CLIPPED, change=30.0, normal=(0.1, math.inf), back=1, quantity="loss"),
    Signal("critic is worse than a constant", r"critic/vf_explained_var", "advantages are noise", _SLOWER, "bound", 0.0, True,
           excuses=("critic_learns",)),
    Signal("entropy explodes", r"actor/entropy(_loss)?", "the policy becomes noise", _SLOWER, change=2.5,
           normal=(0.1, math.inf), excuses=("improves",), quantity="entropy"),
    Signal("entropy is near 0", r"actor/entropy(_loss)?", "responses to a prompt are nearly all alike",
           "actor_rollout_ref.actor.clip_ratio_high=0.28 {resume}", change=40.0, falls=True, excuses=("solved",)),
    Signal("KL explodes", r"actor/(kl_loss|reward_kl_penalty)|critic/kl", *_AWAY, change=10.0, normal=(0.05, math.inf),
           excuses=("improves",), quantity="KL"),
    Signal("KL is large at the start", r"actor/(kl_loss|reward_kl_penalty)|critic/kl", "the reference has other weights",
           "compare both models: actor_rollout_ref.model.path, actor_rollout_ref.ref.model.path", change=10.0, normal=(0.1, 0.1),
           excuses=("later",)),
    Signal("KL explodes", r"actor/ppo_kl", *_AWAY, change=10.0, normal=(0.005, 0.05), back=1, quantity="KL"),
    Signal("rollout and training disagree", r"training/rollout_probs_diff_mean", *_APART, change=3.0, normal=(0.005, 0.0165),
           quantity=_ROLLOUT),
    Signal("rollout and training disagree", r"training/rollout_actor_probs_pearson_corr", *_APART, "distance", 3.0,
           normal=(0.01, 0.033), quantity=_ROLLOUT),
    Signal("rollout and training disagree", r"rollout_corr/(k3_kl|kl|log_ppl_abs_diff)", *_APART, change=8.0,
           normal=(0.005, 0.05), quantity=_ROLLOUT),
    Signal("tokens are clipped", r"actor/(pg_clipfrac|tr_zero_grad_frac)", "clipped tokens have no gradient",
           "look at clip_ratio_low, clip_ratio_high and the updates per batch", "share", 0.3, normal=(0.0, 0.6), back=1,
           quantity="tokens that are clipped"),
    Signal("answers are cut off", rf"{CUT_OFF_SHARE}|response_length/clip_ratio", *_CUT, "share", 0.3, normal=(0.0, 0.6),
           excuses=("improves",), quantity="responses that are cut off"),
    Signal("answers are cut off", rf"{CUT_OFF_SHARE}|response_length/clip_ratio", *_CUT, "bound", _MOST,
           excuses=("improves", "recovers"), lasts=10),
    Signal("prompts are cut", r"prompt_length/clip_ratio", "the model does not see the whole question",
           "raise data.max_prompt_length", "bound", _MOST, quantity="prompts that are cut"),
    Signal("answers become long", r"response_length/mean", *_CUT, change=3.5, excuses=("improves",),
           quantity="length of responses"),
    Signal("answers vanish", r"response_length/mean", "the reward may pay for bare answers", f"{_READ}; then {{resume}}",
           change=5.0, falls=True, excuses=("improves",)),
    Signal("answers vanish", r"(num_turns|tool_call_counts)/mean", "tools are no longer called", f"{_READ}; then {{resume}}",
           change=2.0, falls=True, excuses=("improves",)),
    Signal("answers vanish", r"response/aborted_ratio", "rollouts end without a response", "look at the log", "share", 0.3,
           quantity="responses that are aborted"),
    Signal("answers vanish", r"response/aborted_ratio", "rollouts end without a response", "look at the log", "bound", _MOST,
           lasts=5),
    Signal("nothing is answered", NO_ANSWER, "the reward finds no answer in the responses", _READ, "share", 0.3,
           normal=(0.0, 0.6), excuses=("improves",), quantity="responses without an answer"),
    Signal("nothing is answered", NO_ANSWER, "the reward finds no answer in the responses", _READ, "bound", _MOST,
           excuses=("improves", "recovers"), lasts=10),
    Signal("no answer is right", rf"{TRAIN_ACCURACY}|critic/reward/acc\w*/mean", "only other parts of the reward can be learned",
           f"{_READ}; if they are wrong, choose easier prompts or another model", "bound", 0.0, True, lasts=_RIGHT_IN,
           quantity="accuracy, and parts of the reward"),
    Signal("validation and training disagree", ACCURACY, "validation accuracy is always 0, and most training answers are right",
           "compare the reward, the prompts and the answers of both: `verl-trgrpo preview`", "bound", 0.0, True,
           excuses=("training_fails",)),
    Signal("reward has fallen", REWARDS, *_FELL, "part", 0.22, True, excuses=("harder_prompts", "waves"), quantity="reward"),
    Signal("validation and training part", VALIDATION, "validation falls while the training reward rises",
           f"{_READ}; then {{resume}}", "part", 0.12, True, excuses=("training_stalls",), back=1),
    Signal("validation has fallen", VALIDATION, *_FELL, "part", 0.2, True, back=1, quantity="validation (none is logged)"),
    Signal("part of the reward has fallen", _PARTS, *_FELL, "part", 0.3, True,
           excuses=("improves", "harder_prompts", "waves"), quantity="accuracy, and parts of the reward"),
    Signal("steps take longer", TIMES, "step time grew more than response length",
           "look at memory, search servers and other jobs of the machine", change=1.7, excuses=("longer",),
           machine=True, quantity="time of a step"),
    Signal("memory grows", r"perf/cpu_memory_used_gb", "the run will use up the memory", "{resume}", change=1.6, machine=True,
           quantity="memory of the host"),
)  # fmt: skip

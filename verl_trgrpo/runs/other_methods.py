"""Say why a published method has no word of ``algorithm=``, and what gives its run instead.

The message for ``algorithm=METHOD`` and the list of docs/related_methods.md are made of this table
(``python docs/make_methods.py`` writes the list).
"""

from __future__ import annotations

from typing import NamedTuple


class OtherMethod(NamedTuple):
    """Hold the answer to ``algorithm=METHOD``.

    Args:
        answer: behind "this method"; what to write instead, or why it cannot be written.
        source: the paper, and what the answer was compared with.
        compared: the day of the last comparison with code or text of others; "" where an earlier one has no day, or only the
            abstract was read.
    """

    answer: str
    source: str
    compared: str = ""


OTHER_METHODS = {
    "VESPO": OtherMethod(
        "is algorithm=reinforce shaping=vespo",
        "arXiv 2602.10693; TRL's get_gamma_weights, as Liger-Kernel 0.8.2 has it",
        "2026-11-28",
    ),
    "TOPR": OtherMethod("is algorithm=reinforce shaping=topr", "arXiv 2503.14286; ROLL's use_topr_loss", "2026-11-28"),
    "UP-GRPO": OtherMethod(
        "is algorithm=reinforce shaping=up_grpo", "arXiv 2607.06987; veRL's pull request 7022, TRL's 6579", "2026-11-28"
    ),
    "M2PO": OtherMethod(
        "is algorithm=reinforce shaping=m2po, with algorithm.rollout_correction.bypass_mode=true where the old policy is "
        "the rollout engine",
        "arXiv 2510.01161; Trinity-RFT's and AReaL's losses",
        "2026-11-28",
    ),
    "OPSM": OtherMethod(
        "is mismatch=opsm with any algorithm",
        "arXiv 2512.02556; TRL's off_policy_mask_threshold, slime's compute_opsm_mask",
        "2026-11-28",
    ),
    "IcePop": OtherMethod(
        "is mismatch=icepop with any algorithm, veRL's own weights",
        "arXiv 2510.18855; veRL's decoupled_token_icepop at 0.9.1",
        "2026-11-28",
    ),
    "TIS": OtherMethod(
        "is mismatch=tis with any algorithm, veRL's own weights", "veRL's decoupled_token_is at 0.9.1", "2026-11-28"
    ),
    "MIS": OtherMethod(
        "is mismatch=mis with any algorithm, veRL's own weights and mask",
        "veRL's decoupled_seq_is_rs at 0.9.1",
        "2026-11-28",
    ),
    "LUSPO": OtherMethod("is a recipe of docs/write_your_own.md", "arXiv 2602.05261; TRL's paper index at f2cd577"),
    "F-GRPO": OtherMethod("is a recipe of docs/write_your_own.md", "arXiv 2602.06717; its gamma was not seen"),
    "WAPO": OtherMethod("is a recipe of docs/write_your_own.md", "arXiv 2606.16154; layer6ai-labs/wapo at ca70250"),
    "CW-GRPO": OtherMethod(
        "weighs search rounds by a judge's score, a column per token that no reward here writes", "arXiv 2604.14267"
    ),
    "PPO": OtherMethod(
        "is veRL's own default, with a critic: a run of ppo_trainer without algorithm=",
        "arXiv 1707.06347; veRL 0.9.1",
        "2026-11-28",
    ),
    "ReMax": OtherMethod(
        "needs the reward of a greedy response, which veRL's v1 trainer does not compute; rloo is near",
        "arXiv 2310.10505; veRL 0.9.1",
        "2026-11-28",
    ),
    "S-GRPO": OtherMethod("is algorithm=random_subset here, in its manner", "arXiv 2504.20834"),
    "ETPO": OtherMethod(
        "learns Q-values by soft Bellman updates of single tokens; it is not a policy loss", "arXiv 2402.06700"
    ),
    "ESPO": OtherMethod("is a method for diffusion language models", "arXiv 2512.03759"),
    "Training-Free GRPO": OtherMethod("changes the prompt, not the model", "arXiv 2510.08191"),
    "THR": OtherMethod(
        "needs a weight for the tokens of right answers that its public text does not give", "arXiv 2510.03669"
    ),
    "NTHR": OtherMethod(
        "needs the last hidden states and the prediction errors of a group's right responses, and veRL hands them to neither "
        "estimator nor loss",
        "arXiv 2505.18830; veRL 0.9.1 (tests/verl_plugin/test_canary.py)",
        "2026-11-28",
    ),
    "T-SPMO": OtherMethod(
        "gives a token credit by the responses of its group that share the text before it, by an equation that was not seen; "
        "veRL hands an estimator no tokens and a loss no whole groups, a replay buffer of one's own can fetch both",
        "arXiv 2504.20834; veRL 0.9.1 (tests/verl_plugin/test_canary.py)",
        "2026-11-28",
    ),
    "GiGPO": OtherMethod(
        "gives credit to turns, and the estimators here see one output for each conversation",
        "arXiv 2505.10978; veRL 0.9.1",
        "2026-11-28",
    ),
}

"""Say why a published method has no word of ``algorithm=``, and what gives its run instead.

The message for ``algorithm=METHOD``, and the table and the list of docs/related_methods.md, are made of this table
(``python docs/make_methods.py`` writes both).
"""

from __future__ import annotations

from typing import NamedTuple


class OtherMethod(NamedTuple):
    """Hold the answer to ``algorithm=METHOD``.

    Args:
        answer: behind "this method"; what to write instead, or why it cannot be written.
        source: the paper, and what the answer was compared with.
        compared: the day of the comparison with code or text of others.
        trainers: other trainers that have the method, as their code was in August 2026; "" where none was looked for.
        program: the test that shows what an answer says is not possible, as pytest names it.
    """

    answer: str
    source: str
    compared: str
    trainers: str = ""
    program: str = ""


_CANARY = "tests/verl_plugin/test_canary.py"
OTHER_METHODS = {
    "IcePop": OtherMethod(
        "is mismatch=icepop with any algorithm, veRL's own weights",
        "arXiv 2510.18855; veRL's decoupled_token_icepop at 0.9.1",
        "2026-11-28",
        "veRL, TRL, slime, miles, SkyRL, OpenRLHF, NeMo-RL, open-instruct",
    ),
    "OPSM": OtherMethod(
        "is mismatch=opsm with any algorithm",
        "arXiv 2512.02556; TRL's off_policy_mask_threshold, slime's compute_opsm_mask",
        "2026-11-28",
        "TRL, ms-swift, slime, miles",
    ),
    "TIS": OtherMethod(
        "is mismatch=tis with any algorithm, veRL's own weights",
        "veRL's decoupled_token_is at 0.9.1, TRL's paper index at 0167b7d",
        "2026-11-29",
        "veRL, TRL, slime",
    ),
    "MIS": OtherMethod(
        "is mismatch=mis with any algorithm, veRL's own weights and mask of both sides; TRL masks ratios above a bound alone",
        "veRL's decoupled_seq_is_rs at 0.9.1, TRL's paper index at 0167b7d",
        "2026-11-29",
        "veRL, TRL",
    ),
    "Unbiased KL": OtherMethod(
        "is actor_rollout_ref.actor.kl_loss_type=low_var_kl+ on policy; off policy it is weighed by the ratio with its gradient, "
        "and veRL's KL loss gets no ratio",
        "arXiv 2512.02556; TRL's paper index at 0167b7d",
        "2026-11-29",
        "TRL, slime, miles",
        f"{_CANARY}::test_the_unbiased_kl_is_that_of_the_ratio_on_policy_alone",
    ),
    "VESPO": OtherMethod(
        "is algorithm=reinforce shaping=vespo",
        "arXiv 2602.10693; TRL's get_gamma_weights, as Liger-Kernel 0.8.2 has it",
        "2026-11-28",
        "TRL",
    ),
    "UP-GRPO": OtherMethod(
        "is algorithm=reinforce shaping=up_grpo",
        "arXiv 2607.06987; veRL's pull request 7022, TRL's 6579",
        "2026-11-28",
        "open pull requests of veRL and TRL",
    ),
    "TOPR": OtherMethod(
        "is algorithm=reinforce shaping=topr", "arXiv 2503.14286; ROLL's use_topr_loss", "2026-11-28", "ROLL"
    ),
    "M2PO": OtherMethod(
        "is algorithm=reinforce shaping=m2po, with algorithm.rollout_correction.bypass_mode=true where the old policy is "
        "the rollout engine",
        "arXiv 2510.01161; Trinity-RFT's and AReaL's losses",
        "2026-11-28",
        "AReaL, Trinity-RFT",
    ),
    "ScaleRL": OtherMethod(
        "averages tokens of a prompt, then prompts, as the estimator prompt_mean of docs/write_your_own.md; its loss is "
        "algorithm=cispo with a higher clip (TRL: 5.0), and it divides by the standard deviation of the batch, not of the group",
        "arXiv 2510.13786; SkyRL's prompt_mean at a956457, TRL's paper index at 0167b7d",
        "2026-11-29",
        "SkyRL, AReaL (open)",
    ),
    "IPO with KL": OtherMethod(
        "is a loss of your own, as in docs/write_your_own.md: algorithm=ipo_mask is its trust region, and a shaping adds no "
        "second term such as (log r)^2",
        "prime-rl's ipo_loss_fn at 559b447, pull requests 3418 and 3586",
        "2026-11-29",
        "prime-rl, its default from August to September 2026",
    ),
    "GiGPO": OtherMethod(
        "gives credit to turns, and the estimators here see one output for each conversation",
        "arXiv 2505.10978; veRL 0.9.1",
        "2026-11-28",
        "ROLL, Trinity-RFT",
        f"{_CANARY}::test_turns_of_a_session_reach_no_estimator_but_grpo",
    ),
    "On-policy distillation": OtherMethod(
        "is veRL's own, distillation.enabled=true; it was not tried beside the words here",
        "veRL's distillation_ppo_loss at 0.9.1",
        "2026-11-29",
        "veRL, TRL, slime, NeMo-RL, prime-rl",
    ),
    "KPop": OtherMethod(
        "moves the bounds of IcePop's mask, by an equation that was not found; mismatch=icepop has fixed bounds",
        "ringtech.notion.site/kpop of May 2026, its beginning",
        "2026-11-29",
        "none found",
    ),
    "LUSPO": OtherMethod(
        "is a recipe of docs/write_your_own.md",
        "arXiv 2602.05261; TRL's loss_type=luspo and its paper index, README of murphy4122/LUSPO (its loss was not found)",
        "2026-11-29",
    ),
    "F-GRPO": OtherMethod(
        "is a recipe of docs/write_your_own.md, with a gamma of 1 that is not the paper's",
        "arXiv 2602.06717; abstracts of v1 and v2, a summary with the formula; no value of gamma and no code was found",
        "2026-11-29",
    ),
    "WAPO": OtherMethod(
        "is a recipe of docs/write_your_own.md", "arXiv 2606.16154; layer6ai-labs/wapo at ca70250", "2026-11-29"
    ),
    "CW-GRPO": OtherMethod(
        "multiplies A of each search round of a right response by a language model's judgement of the round, for which no reward "
        "here asks",
        "arXiv 2604.14267; zsxmwjz/CW-GRPO at 11508ad",
        "2026-11-29",
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
        program=f"{_CANARY}::test_the_v1_trainer_samples_no_greedy_response",
    ),
    "S-GRPO": OtherMethod(
        "is two methods: one drops random late tokens, and algorithm=random_subset random ones of any place; the other rewards "
        "an early end of the reasoning, and has no word",
        "arXiv 2504.20834, 2505.07686; abstracts, and a summary of the first; no code of it was found",
        "2026-11-29",
    ),
    "ETPO": OtherMethod(
        "learns a Q-value for every token of the vocabulary, with a second network, by soft Bellman updates; it is not a loss of "
        "sampled tokens",
        "arXiv 2402.06700; morning9393/ETPO at d3d7d9c",
        "2026-11-29",
    ),
    "ESPO": OtherMethod(
        "is several methods, none with a word: of diffusion language models, with ratios of ELBOs; of groups of tokens by "
        "entropy, whose equation was not found; of PPO with early stopping",
        "arXiv 2512.03759, 2512.00499; ML-GSAI/ESPO at b5f2dac, abstracts of the others (ShopeeLLM/ESPO has no code)",
        "2026-11-29",
    ),
    "Training-Free GRPO": OtherMethod(
        "changes the prompt, not the model",
        "arXiv 2510.08191; utu/practice of TencentCloudADP/youtu-agent at bef6ba5, which has no optimizer",
        "2026-11-29",
    ),
    "THR": OtherMethod(
        "weighs tokens by their influence on the group's right responses, by an equation that was not found",
        "arXiv 2510.03669; introductions of v3 and v4, reviews of ICLR 2026; no code was found",
        "2026-11-29",
    ),
    "NTHR": OtherMethod(
        "needs the last hidden states and the prediction errors of a group's right responses, and veRL hands them to neither "
        "estimator nor loss; a public example replaces veRL's worker to get them",
        "arXiv 2505.18830; the note nthr.md and its example nthr_trainer for veRL 0.7; veRL 0.9.1",
        "2026-11-29",
        program=f"{_CANARY}::test_the_engine_hands_a_loss_no_hidden_states",
    ),
    "T-SPMO": OtherMethod(
        "gives a token credit by the responses of its group that share the text before it, by an equation that was not found; "
        "veRL hands an estimator no tokens and a loss no whole groups, a replay buffer of one's own can fetch both",
        "arXiv 2504.20834; abstracts and introductions of v1 and v3, a summary; no code was found; veRL 0.9.1",
        "2026-11-29",
        program=f"{_CANARY}::test_an_estimator_gets_neither_tokens_nor_hidden_states",
    ),
}

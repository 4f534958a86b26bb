"""Name the policy losses of this plugin, and veRL's own that are among them with token weights."""

# veRL's own losses with token weights, and their names here: those that multiply the loss of each token by
# ``rollout_is_weights`` after their own clip. vanilla is the loss of TR-GRPO.
_TOKEN_WISE = ("dppo_tv", "dppo_kl", "gspo", "sapo", "cispo", "clip_cov", "kl_cov", "gpg", "dro")
WEIGHTED = {"vanilla": "tr_grpo"} | {name: f"tr_{name}" for name in _TOKEN_WISE}
VERLS_NAMES = {own: name for name, own in WEIGHTED.items()}
LOSS_MODES = ("tr_grpo", "aspo", *(f"tr_{name}" for name in _TOKEN_WISE))
# Those that do not, and why.
WITHOUT_WEIGHTS = {
    "geo_mean": "takes the geometric mean of a response's weights, one number for all of its tokens",
    "bypass_mode": "computes weights of its own and ignores all others",
}


def weighted_loss_mode(name: str) -> str:
    """Return the registered name of the policy loss `name` with token weights; a name that is not registered stays as it is.

    Raises:
        ValueError: a loss that has no place for the weight of a token, or one of another plugin.
    """
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY  # imports this plugin

    found = WEIGHTED.get(name, name)
    # veRL itself refuses a loss that is not registered.
    if found in LOSS_MODES or found not in POLICY_LOSS_REGISTRY:
        return found
    reason = WITHOUT_WEIGHTS.get(name, "is not known to multiply the loss of each token by a weight")
    raise ValueError(
        f"policy_loss.loss_mode={name}: {reason}, so shaping, placement, prob_source, normalize, kl and opsm would be ignored; "
        f"remove the shaping or mismatch=opsm, or set loss_mode to {', '.join((*WEIGHTED, 'aspo'))}"
    )

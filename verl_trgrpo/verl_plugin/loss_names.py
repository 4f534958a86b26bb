"""Name the policy losses of this plugin, and say which of veRL's own they are with token weights. Imports nothing."""

# veRL's own losses with token weights, and their names here: those that multiply the loss of each token by
# ``rollout_is_weights`` after their own clip. vanilla is the loss of TR-GRPO.
_TOKEN_WISE = ("dppo_tv", "dppo_kl", "gspo", "sapo", "cispo", "clip_cov", "kl_cov", "gpg", "dro")
WEIGHTED = {"vanilla": "tr_grpo"} | {name: f"tr_{name}" for name in _TOKEN_WISE}
LOSS_MODES = ("tr_grpo", "aspo", *(f"tr_{name}" for name in _TOKEN_WISE))
# Those that do not, and why.
WITHOUT_WEIGHTS = {
    "geo_mean": "takes the geometric mean of a response's weights, one number for all of its tokens",
    "bypass_mode": "computes weights of its own and ignores all others",
}

"""Name the advantage estimators, veRL's and this package's, by what their results depend on.

tests/checks/test_estimators.py computes it from the registered functions.
"""

# On no standard deviation, or always on the same one.
WITHOUT_STD = (
    "gae", "remax", "rloo", "rloo_vectorized", "opo", "gpg", "reinforce_plus_plus", "reinforce_plus_plus_baseline",
    "optimal_token_baseline", "tir_optimal_token_baseline", "reinforce_rej", "w_reinforce", "raft", "maxrl",
)  # fmt: skip
# On no discount.
WITHOUT_DISCOUNT = (
    "grpo", "grpo_vectorized", "grpo_passk", "gdpo", "remax", "rloo", "rloo_vectorized", "opo", "gpg",
    "reinforce_plus_plus_baseline", "optimal_token_baseline", "tir_optimal_token_baseline", "tr_grpo", "reinforce_rej", "ha_dw",
    "w_reinforce", "raft", "maxrl",
)  # fmt: skip
# On the other responses to a prompt.
OF_GROUPS = (
    "grpo", "grpo_vectorized", "grpo_passk", "gdpo", "rloo", "rloo_vectorized", "opo", "gpg", "reinforce_plus_plus_baseline",
    "optimal_token_baseline", "tir_optimal_token_baseline", "tr_grpo", "reinforce_rej", "ha_dw", "maxrl",
)  # fmt: skip

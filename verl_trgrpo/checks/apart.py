"""List what veRL's trainers with GPUs of their own for the rollout need, the one-step-off and the fully asynchronous one.

Every row was read in the code of veRL 0.9.1, ``verl.experimental``. Rules that no other trainer has are here; the other tables
hold as far as these trainers read their keys.
"""

from __future__ import annotations

from verl_trgrpo.checks.tables import Rule

_APART = "trainer_name in ('one_step', 'fully_async')"
_ASYNC = "trainer_name == 'fully_async'"
_OWN_GPUS = "the rollout has GPUs of its own"
_REFUSES = "veRL's rollouter refuses the value"

APART = {
    "hybrid_engine": Rule(
        "actor_rollout_ref.hybrid_engine", "not actor_rollout_ref.hybrid_engine",
        f"{_OWN_GPUS}, and veRL's trainer refuses to share them; set <actor_rollout_ref.hybrid_engine>=false", asked=_APART),
    "nodes_of_the_rollout": Rule(
        "pool.nnodes", "pool.nnodes > 0 or async_training.use_dynamic_resource_scheduling",
        f"{_OWN_GPUS}; set <pool.nnodes>=1 or more", asked=_APART),
    "gpus_of_the_rollout": Rule(
        "pool.n_gpus_per_node", "pool.n_gpus_per_node > 0 or pool.nnodes == 0",
        f"{_OWN_GPUS}; set <pool.n_gpus_per_node>={{= rollout.tensor_model_parallel_size * rollout.data_parallel_size}} or more",
        asked=_APART),
    "replica_of_the_rollout": Rule(
        "rollout.tensor_model_parallel_size",
        "rollout.tensor_model_parallel_size * rollout.data_parallel_size <= pool.nnodes * pool.n_gpus_per_node",
        "times {rollout.data_parallel_size} is more than the {= pool.nnodes * pool.n_gpus_per_node} GPUs of the rollout "
        "(rollout.n_gpus_per_node x rollout.nnodes), so no server starts; set <rollout.tensor_model_parallel_size> to at most "
        "{= pool.nnodes * pool.n_gpus_per_node}", asked=f"{_APART} and pool.nnodes > 0 and pool.n_gpus_per_node > 0"),
    "weights_of_the_rollout": Rule(
        "rollout.checkpoint_engine.backend", "rollout.checkpoint_engine.backend != 'naive'",
        "this backend carries no weights to other GPUs; set <rollout.checkpoint_engine.backend>=nccl", asked=_APART),
    "mode_of_the_rollout": Rule(
        "rollout.mode", "rollout.mode == 'async'", "veRL's trainer refuses another mode; set <rollout.mode>=async", asked=_APART),
    "async_train_batch": Rule(
        "data.train_batch_size", "data.train_batch_size == 0",
        f"{_REFUSES}, prompts are drawn one by one; set <data.train_batch_size>=0", asked=_ASYNC),
    "async_gen_batch": Rule(
        "data.gen_batch_size", "data.gen_batch_size == 1",
        f"{_REFUSES}, prompts are drawn one by one; set <data.gen_batch_size>=1", asked=_ASYNC),
    "async_staleness": Rule(
        "async_training.staleness_threshold", "(async_training.staleness_threshold or 0) >= 0",
        f"{_REFUSES}; set <async_training.staleness_threshold>=0.1, or another share of a step", asked=_ASYNC),
    "async_sync_step": Rule(
        "async_training.trigger_parameter_sync_step", "(async_training.trigger_parameter_sync_step or 0) >= 1",
        f"{_REFUSES}; set <async_training.trigger_parameter_sync_step>=1 or more", asked=_ASYNC),
    "async_log_probs": Rule(
        "rollout.calculate_log_probs", "rollout.calculate_log_probs",
        f"{_REFUSES}, the rollout's log-probabilities are the old ones; set <rollout.calculate_log_probs>=true", asked=_ASYNC),
    "async_reward_model": Rule(
        "reward_model.enable_resource_pool", "reward_model.enable_resource_pool",
        f"{_REFUSES}, a reward model needs GPUs of its own; set <reward_model.enable_resource_pool>=true",
        asked=f"{_ASYNC} and reward_model.enable"),
}  # fmt: skip

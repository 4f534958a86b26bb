# Types of the names that __init__.py imports when they are first used.
from verl_trgrpo.core import ClipRange, TokenWeighting, compute_policy_loss, make_shaping, register_shaping
from verl_trgrpo.tasks import compute_score, register_reward

__version__: str

__all__ = [
    "ClipRange",
    "TokenWeighting",
    "__version__",
    "compute_policy_loss",
    "compute_score",
    "make_shaping",
    "register_reward",
    "register_shaping",
]

"""Token shapings: functions from a token's probability to the weight of its loss, most of them monotone.

Use :func:`make_shaping` to build one by name, :func:`register_shaping` to add your own.
"""

from verl_trgrpo.core.shaping.base import Shaping, check_shaping
from verl_trgrpo.core.shaping.builtin import BinaryEntropy, Linear, Power, Sigmoid, SigmoidCentered, Threshold, Uniform
from verl_trgrpo.core.shaping.registry import available_shapings, get_shaping, make_shaping, register_shaping

__all__ = [
    "BinaryEntropy",
    "Linear",
    "Power",
    "Shaping",
    "Sigmoid",
    "SigmoidCentered",
    "Threshold",
    "Uniform",
    "available_shapings",
    "check_shaping",
    "get_shaping",
    "make_shaping",
    "register_shaping",
]

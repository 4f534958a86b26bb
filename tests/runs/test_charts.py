"""The colours of pictures can be told apart by readers who see fewer of them."""

import itertools
import math

import pytest

from verl_trgrpo.runs.charts import COLORS

# Machado, Oliveira and Fernandes 2009, severity 1: what linear RGB looks like.
SEEN = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def lab(color, seen):
    """CIELAB under D65 of a colour as somebody sees it."""
    srgb = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in srgb]
    light = [min(max(x, 0.0), 1.0) for x in times(seen, linear)]
    white = (0.9505, 1.0, 1.089)
    x, y, z = (
        math.cbrt(t) if t > (6 / 29) ** 3 else t / (3 * (6 / 29) ** 2) + 4 / 29
        for t in (a / b for a, b in zip(times(XYZ, light), white, strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("seen", SEEN)
def test_no_two_colours_look_alike(seen):
    places = [lab(color, SEEN[seen]) for color in COLORS]
    assert min(itertools.starmap(math.dist, itertools.combinations(places, 2))) > 15

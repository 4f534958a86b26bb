"""Runs as public reports describe them: sick ones with the metric that shows it, and sound ones that look odd.

Values are drawn with noise about the numbers or curves of the report; a seed decides the noise alone.
"""

import numpy as np

from verl_trgrpo.runs.metrics import Step

SCORE, GRAD, ENTROPY, LENGTH, CLIP = (
    "critic/score/mean", "actor/grad_norm", "actor/entropy", "response_length/mean", "response_length/clip_ratio",
)  # fmt: skip
DIFF, PEARSON = "training/rollout_probs_diff_mean", "training/rollout_actor_probs_pearson_corr"
VAL = "val-core/math/acc/mean@1"
NAN = np.nan


class Draw:
    """Curves with noise."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def noisy(self, level, share=0.08):
        return np.asarray(level, float) * np.exp(self.rng.normal(0, share, np.shape(level)))

    def shares(self, level, of):
        return self.rng.binomial(of, np.clip(level, 0, 1)) / of

    def usual(self, n, **curves):
        """What a sound run logs, and `curves` by metric in place of it."""
        t = np.linspace(0, 1, n)
        sound = {
            SCORE: self.shares(0.3 + 0.3 * (1 - np.exp(-4 * t)), 256), GRAD: self.noisy(0.3 + 0 * t, 0.2),
        LENGTH: self.noisy(420 + 150 * t, 0.04),
            ENTROPY: self.noisy(0.45 * np.exp(-1.2 * t)), CLIP: self.shares(0.03 + 0 * t, 256), "actor/lr": 1e-6 + 0 * t,
            "actor/ppo_kl": self.rng.normal(0, 5e-4, n), "actor/pg_clipfrac": self.noisy(0.004 + 0 * t, 0.3),
        "timing_s/step": self.noisy(95 + 20 * t),
            DIFF: self.noisy(0.0035 + 0 * t, 0.05), PEARSON: 1 - self.noisy(0.0008 + 0 * t, 0.2),
        "actor/pg_loss": self.rng.normal(0, 0.01, n),
        }  # fmt: skip
        return sound | {name: np.asarray(curve, float) for name, curve in curves.items()}


def steps_of(columns, every=None):
    """Return the steps; metrics of validations have values at every so many steps."""
    length = max(map(len, columns.values()))
    return [
        Step(
            i + 1,
            {
                name: float(v[i])
                for name, v in columns.items()
                if not name.startswith("val") or (i + 1) % (every or 1) == 0
            },
        )
        for i in range(length)
    ]


def curve(*points):
    """Return the straight lines through (step, value), from step 0 to the last."""
    at, values = zip(*points, strict=True)
    return np.interp(np.arange(at[-1] + 1), at, values)


def _after(n, first, before, after):
    """Return `before` up to a step, and `after` from it on."""
    return np.where(np.arange(1, n + 1) < first, before, after)


def _some(draw, n, first, share):
    """Return where a share of the steps is, from one on."""
    return (draw.rng.random(n) < share) & (np.arange(1, n + 1) >= first)


def _solves(draw, n=80):
    """A task that is solved: gradients, entropy and validation stop to move, because all is right."""
    right = np.minimum(1.0, curve((0, 0.4), (n // 2, 0.97), (n - 1, 1.0)))
    score = draw.shares(right, 512)
    gone = score > 0.995
    return draw.usual(n, **{
        SCORE: score, "critic/score/max": np.ones(n), "critic/score/min": np.where(gone, 1.0, 0.0),
        GRAD: np.where(gone, 0.0, draw.noisy(0.3 * (1.02 - right))),
        ENTROPY: draw.noisy(0.5 * (1.001 - right)), "critic/equal_groups_frac": np.clip(right**8, 0, 1),
        VAL: draw.shares(right * 0.98, 500),
    })  # fmt: skip


# By report: columns, steps between validations, the metric that shows it, and the first sick step (None: any).
SICK = {
    "verl 721: NaN and exclamation marks": lambda d: (d.usual(70, **{
        GRAD: _after(70, 59, d.noisy(np.full(70, 0.3)), NAN), "actor/kl_loss": _after(70, 59, d.noisy(np.linspace(1e-3,
        0.02, 70)), NAN),
        SCORE: _after(70, 60, d.shares(np.full(70, 0.6), 256), 0)}), 0, "actor/grad_norm actor/kl_loss", 59),
    "verl 1197: every gradient is NaN": lambda d: (d.usual(25, **{GRAD: np.full(25, NAN)}), 0, GRAD, 1),
    "half of the updates are NaN, the last is not": lambda d: (d.usual(60, **{
        GRAD: np.where(np.arange(60) % 2 == 0, NAN, d.noisy(np.full(60, 0.3)))}), 0, GRAD, 1),
    "open-r1 704: KL is NaN": lambda d: (d.usual(30, **{"actor/kl_loss": np.full(30, NAN)}), 0, "actor/kl_loss", 1),
    "ms-swift 3136: learning rate 0, rewards 0": lambda d: (d.usual(120, **{
        "actor/lr": _after(120, 90, 1e-6, 0), SCORE: _after(120, 90, d.shares(np.full(120, 0.5), 128), 0)}), 0,
        f"actor/lr {SCORE}", 90),
    "ms-swift 5890: gradient 0, rewards vary": lambda d: (d.usual(20, **{GRAD: np.zeros(20),
        "actor/pg_loss": np.zeros(20)}), 0, GRAD, 1),
    "ConvSearch-R1 6: reward 1.3 to 0 in 20 steps, nothing validated": lambda d: (d.usual(90, **{
        SCORE: d.noisy(curve((0, 0.6), (50, 1.3), (70, 0.01), (89, 0.005)), 0.1)}), 0, SCORE, 53),
    "ZeroSearch 23: reward falls by half and stays": lambda d: (d.usual(200, **{
        SCORE: d.shares(curve((0, 0.25), (110, 0.45), (125, 0.2), (199, 0.18)), 256)}), 0, SCORE, 115),
    "Agent-R1 8: validation drops after step 60": lambda d: (d.usual(100, **{
        VAL: d.shares(curve((0, 0.3), (60, 0.52), (70, 0.2), (99, 0.12)), 500)}), 10, VAL, 70),
    "own reward, a number: .60 to .03": lambda d: (d.usual(60, **{
        "val-core/own/reward/mean@1": d.shares(curve((0, 0.4), (30, 0.6), (45, 0.03), (59, 0.03)), 400)}), 5,
        "val-core/own/reward/mean@1", 35),
    "reward hacking: training up, validation down": lambda d: (d.usual(150, **{
        SCORE: d.shares(curve((0, 0.3), (149, 0.95)), 256), VAL: d.shares(curve((0, 0.4), (50, 0.55), (149, 0.33)),
        1000)}), 10, VAL, 70),
    "open-r1 255: the format is learned, the accuracy lost": lambda d: (d.usual(60, **{
        SCORE: d.noisy(curve((0, 0.7), (59, 1.2)), 0.05), "critic/reward/acc/mean": d.shares(curve((0, 0.3), (25,
        0.02), (59, 0.01)), 256)}), 0,
        "critic/reward/acc/mean", 12),
    "one of three sources is forgotten": lambda d: (d.usual(120, **{
        VAL: d.shares(curve((0, 0.4), (119, 0.6)), 500), "val-core/gsm8k/acc/mean@1": d.shares(curve((0, 0.7), (119,
        0.8)), 1319),
        "val-core/kk_3ppl/acc/mean@1": d.shares(curve((0, 0.5), (50, 0.55), (80, 0.2), (119, 0.1)), 300)}), 10,
        "val-core/kk_3ppl/acc/mean@1", 60),
    "verl-omni 552: gradient 3e-4 to 1.9, rollout .003 to .063": lambda d: (d.usual(80, **{
        GRAD: d.noisy(np.exp(curve((0, -8.1), (20, -8), (79, 0.64)))), DIFF: d.noisy(np.exp(curve((0, -5.8), (20,
        -5.8), (79, -2.76))))}), 0,
        f"{GRAD} {DIFF}", 30),
    "verl 7014: the rollout keeps the base model": lambda d: (d.usual(60, **{
        DIFF: d.noisy(curve((0, 0.003), (59, 0.06))), PEARSON: 1 - d.noisy(curve((0, 0.0008), (59, 0.09)))}), 0,
        f"{DIFF} {PEARSON}", 15),
    "Precision-RL 10: mismatch KL 1e-3 to 1": lambda d: (d.usual(300, **{
        "rollout_corr/k3_kl": d.noisy(np.exp(curve((0, -6.9), (150, -6.5), (299, 0))), 0.2)}), 0, "rollout_corr/k3_kl",
        200),
    "verl 1066: entropy and gradient rise together": lambda d: (d.usual(140, **{
        ENTROPY: d.noisy(curve((0, 0.4), (90, 0.3), (110, 4), (139, 6))), GRAD: d.noisy(curve((0, 0.3), (92, 0.3),
        (110, 12), (139, 20)), 0.3),
        SCORE: d.shares(curve((0, 0.4), (90, 0.6), (115, 0.1), (139, 0.02)), 256)}), 0, f"{ENTROPY} {GRAD} {SCORE}", 95),
    "verl 5953: entropy collapses early": lambda d: (d.usual(100, **{
        ENTROPY: d.noisy(np.exp(curve((0, -0.7), (30, -6), (99, -7)))), SCORE: d.shares(np.full(100, 0.42), 256)}), 0,
        ENTROPY, 25),
    "open-r1 257: KL becomes extreme": lambda d: (d.usual(80, **{
        "actor/kl_loss": d.noisy(np.exp(curve((0, -9), (40, -4), (60, 3), (79, 5))), 0.3),
        SCORE: d.shares(curve((0, 0.3), (45, 0.4), (65, 0), (79, 0)), 256)}), 0, f"actor/kl_loss {SCORE}", 48),
    "EchoInk 5: answers run to the limit": lambda d: (d.usual(120, **{
        CLIP: d.shares(curve((0, 0.02), (70, 0.05), (95, 0.75), (119, 0.85)), 128), LENGTH: d.noisy(curve((0, 300),
        (70, 350), (95, 1700), (119, 1900)), 0.04),
        SCORE: d.shares(curve((0, 0.4), (70, 0.5), (119, 0.2)), 128)}), 0, f"{CLIP} {LENGTH} {SCORE}", 75),
    "the reward pays for bare answers": lambda d: (d.usual(80, **{
        LENGTH: d.noisy(np.exp(curve((0, 6), (40, 6), (60, 2.3), (79, 2))), 0.05), VAL: d.shares(curve((0, 0.4), (40,
        0.5), (79, 0.3)), 500)}), 10,
        f"{LENGTH} {VAL}", 50),
    "verl 2260: generation takes ever longer": lambda d: (d.usual(150, **{
        "timing_s/gen": d.noisy(curve((0, 60), (20, 60), (149, 400))), "timing_s/step": d.noisy(curve((0, 95), (20,
        95), (149, 440)))}), 0,
        "timing_s/gen timing_s/step", 40),
    "verl 429: memory of the host grows until Ray kills": lambda d: (d.usual(200,
        **{"perf/cpu_memory_used_gb": d.noisy(curve((0, 180), (199, 700)), 0.01)}), 0,
        "perf/cpu_memory_used_gb", 50),
    "searches stop": lambda d: (d.usual(100, **{
        "num_turns/mean": d.noisy(curve((0, 4.2), (40, 4.5), (60, 1.1), (99, 1.0)), 0.02), VAL: d.shares(curve((0,
        0.3), (40, 0.4), (99, 0.25)), 500)}), 10,
        "num_turns/mean", 50),
    "verl 5211: reward, loss and gradient are 0 from the start": lambda d: (d.usual(15, **{
        SCORE: np.zeros(15), GRAD: np.zeros(15), "actor/pg_loss": np.zeros(15),
        "critic/advantages/max": np.zeros(15)}), 0,
        f"{GRAD} critic/advantages/max", 1),
    "slime 1695: low after a resume": lambda d: (d.usual(100, **{SCORE: d.shares(_after(100, 61, curve((0, 0.3), (99,
        0.6)), 0.12), 256)}), 0, SCORE, 61),
}  # fmt: skip

# By report or habit: columns and steps between validations.
SOUND = {
    "a usual run": lambda d: (d.usual(100, **{VAL: d.shares(curve((0, 0.4), (99, 0.6)), 500)}), 10),
    "ten steps": lambda d: (d.usual(10), 0),
    "a thousand steps": lambda d: (d.usual(1000, **{VAL: d.shares(curve((0, 0.4), (300, 0.6), (999, 0.62)), 500)}), 20),
    "AIME24, one sample, .20 to .26": lambda d: (d.usual(200, **{"val-core/aime24/acc/mean@1": d.shares(curve((0, 0.2),
        (199, 0.26)), 30)}), 5),
    "a base model rambles, then answers": lambda d: (d.usual(60, **{
        CLIP: d.shares(curve((0, 0.97), (4, 0.9), (10, 0.1), (59, 0.03)), 256), LENGTH: d.noisy(np.exp(curve((0, 8.3),
        (4, 8.2), (12, 5.9), (59, 5.8))), 0.04),
        SCORE: d.shares(curve((0, 0.01), (10, 0.3), (59, 0.6)), 256)}), 0),
    "a task is solved": lambda d: (_solves(d), 10),
    "warm-up of the learning rate, then a cosine to 0": lambda d: (d.usual(100, **{
        "actor/lr": 1e-6 * np.minimum(np.arange(100) / 10, 0.5 * (1 + np.cos(np.pi * np.arange(100) / 99)))}), 0),
    "the prompts become harder at step 60": lambda d: (d.usual(120, **{
        SCORE: d.shares(_after(120, 60, curve((0, 0.4), (119, 0.75)), curve((0, 0.2), (119, 0.45))), 256),
        VAL: d.shares(curve((0, 0.4), (119, 0.6)), 500)}), 10),
    "entropy rises from 0.5 to 1.1 under clip-higher, accuracy with it": lambda d: (d.usual(300, **{
        ENTROPY: d.noisy(curve((0, 0.5), (299, 1.1))), VAL: d.shares(curve((0, 0.3), (299, 0.5)), 500)}), 15),
    "answers grow fivefold, accuracy with them": lambda d: (d.usual(300, **{
        LENGTH: d.noisy(curve((0, 900), (299, 4800)), 0.04), "timing_s/step": d.noisy(curve((0, 100), (299, 600))),
        CLIP: d.shares(curve((0, 0.01), (299, 0.2)), 256),
        VAL: d.shares(curve((0, 0.2), (299, 0.55)), 500)}), 15),
    "one step is NaN": lambda d: (d.usual(80, **{GRAD: np.where(np.arange(80) == 40, NAN, d.noisy(np.full(80, 0.3)))}),
        0),
    "three spikes of the gradient": lambda d: (d.usual(150, **{
        GRAD: d.noisy(np.full(150, 0.3), 0.2) * np.where(np.isin(np.arange(150), (30, 71, 120)), 40, 1)}), 0),
    "validation every fifth step takes three times as long": lambda d: (d.usual(60, **{
        "timing_s/step": d.noisy(np.where(np.arange(60) % 5 == 4, 400, 100.0)), VAL: d.shares(curve((0, 0.4), (59,
        0.5)), 500)}), 5),
    "KL rises with the accuracy": lambda d: (d.usual(400, **{
        "actor/kl_loss": d.noisy(curve((0, 1e-4), (399, 0.8)), 0.1), VAL: d.shares(curve((0, 0.3), (399, 0.6)), 500)}),
        20),
    "rewards from -3 to 3": lambda d: (d.usual(150, **{SCORE: d.noisy(np.full(150, 1.0), 0) * (d.shares(curve((0, 0.3),
        (149, 0.7)), 96) * 6 - 3)}), 0),
    "FP8 rollout: apart, and steadily so": lambda d: (d.usual(100, **{
        DIFF: d.noisy(np.full(100, 0.02)), PEARSON: 1 - d.noisy(np.full(100, 0.02))}), 0),
    "a plateau of 500 steps": lambda d: (d.usual(500, **{SCORE: d.shares(np.full(500, 0.5), 64),
        VAL: d.shares(np.full(500, 0.45), 200)}), 10),
    "four prompts per batch": lambda d: (d.usual(60, **{SCORE: d.shares(curve((0, 0.2), (59, 0.6)), 4)}), 0),
    "verbose answers become concise": lambda d: (d.usual(200, **{
        LENGTH: d.noisy(curve((0, 1800), (199, 700)), 0.04), VAL: d.shares(curve((0, 0.5), (199, 0.56)), 500)}), 10),
    "a critic warms up: no update of the policy for 10 steps": lambda d: (d.usual(80, **{
        GRAD: _after(80, 11, 0.0, d.noisy(np.full(80, 0.3))), "critic/vf_loss": d.noisy(np.exp(curve((0, 1), (79,
        -2))), 0.2)}), 0),
}  # fmt: skip

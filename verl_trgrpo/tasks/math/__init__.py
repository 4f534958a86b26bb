"""Mathematics data sets: DeepScaleR's training problems and its five test sets."""

from verl_trgrpo.tasks.task import Builder, Sampling, Scoring, Task

_MATH, _DAPO, _MINERVA = (
    Scoring(f"{__name__}.reward:{name}", alternatives="verl_trgrpo.judge.equality:alternatives")
    for name in ("score_math", "score_dapo", "score_minerva")
)
# `math500` is MATH-500, too.
_FOREIGN = (
    (("math_dapo*", "DAPO-Math*", "*/DAPO-Math*"), _DAPO),  # DAPO
    (("minerva*", "*/minerva*"), _MINERVA),  # Minerva
    (("aime*", "*/aime*", "amc*", "*/amc*", "AI-MO/aimo-validation-*"), _MATH),  # aime24, HuggingFaceH4/aime_2024
    (("hmmt*", "*/hmmt*", "OlympiadBench*", "*/OlympiadBench*"), _MATH),  # HMMT25, Hothan/OlympiadBench
    (("MATH-500*", "*/MATH-500*"), _MATH),  # HuggingFaceH4/MATH-500
    (("simplerl/*", "simplelr*"), _MATH),  # SimpleRL-Zoo
    (("orz", "orz_math*"), _MATH),  # Open-Reasoner-Zero
    (("train-math-*",), _MATH),  # Skywork-OR1
    (("Big-Math*", "OpenR1-Math*", "DeepMath*"), _MATH),  # data sets of these names
    (("numina_*",), _MATH),  # PRIME
    (("*/gsm8k", "gsm8k*", "*/MATH", "MATH-lighteval", "*/MATH-lighteval", "hiyouga/math12k"), _MATH),  # veRL
    (("", "deepscaler*", "*_dsr"), _MATH),  # DeepScaleR's script leaves the name empty; its users have aime_dsr
)
TASK = Task(
    rewards={
        **dict.fromkeys(("math", "deepscaler", "aime2024", "amc2023", "math500", "olympiad_bench", "svamp"), _MATH),
        "math_dapo": _DAPO,
        "minerva": _MINERVA,
    },
    foreign={pattern: scoring for patterns, scoring in _FOREIGN for pattern in patterns},
    builders={
        "deepscaler": Builder(
            f"{__name__}.rows:build_deepscaler",
            "build the Parquet files of DeepScaleR's problems and its five test sets",
        )
    },
    presets={"aime": Sampling(16, 0.6, 0.95, 32768)},
    spellings={"mathematics": f"{__name__}.words:in_one_spelling"},
)

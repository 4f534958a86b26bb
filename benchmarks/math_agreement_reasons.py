"""Why verdicts differ, for the tables of `math_agreement.py`: (rule, scorer) -> reason.

The rule "*" stands for all rules that keep the value where there is no reason of its own.
"""

REASONS: dict[tuple[str, str], str] = {
    ("*", "math_dapo"): "the content of a box is compared letter by letter; normalising is kept for `Answer:` lines",
    ("*", "math_reward"): "strings are compared after a few replacements, which do not cover this spelling",
    ("as it is", "math_dapo"): "the ground truth ends in a line break, which no box reproduces; or the answer is cut, "
    "because only the last 100 characters are read",
    ("as it is", "prime_math"): "the answer is cut to what follows its last `=`, the ground truth is not",
    ("dollar signs left out", "prime_math"): "the answer is cut to what follows its last `=`, the ground truth is not",
    (r"\dfrac", "prime_math"): "the answer is cut to what follows its last `=`, the ground truth is not",
    ("name left out", "prime_math"): "the name stays in the ground truth",
    ("period behind", "math_verify"): "a period before the closing brace does not parse",
    ("period behind", "prime_math"): "the period stays and makes another string",
    ("dollar signs left out", "math_reward"): "the dollar signs of the ground truth are compared as well",
    ("unit added", "math_reward"): "the dollar signs of the ground truth are compared as well",
    ("x = in front", "math_reward"): "the dollar signs of the ground truth are compared as well",
    (r"in \text", "math_verify"): "compared as text, so that a leading zero counts",
    ("unit left out", "prime_math"): "dollar signs hide the degree sign; `\\mbox` is not known as a unit",
    ("unit left out", "math_reward"): "dollar signs are compared; `\\mbox` is not known as a unit",
    ("percent sign left out", "math_verify"): "a percent sign does not parse, so only the same text is right",
    ("list in another order", "prime_math"): "lists are compared in order",
    ("list in another order", "math_verify"): "names with subscripts do not parse and are compared as text",
    ("list in braces", "prime_math"): "braces are not read as a set",
    ("list in braces", "math_verify"): "names with subscripts do not parse and are compared as text",
    ("a digit changed", "math_dapo"): "one of the ground truths has no unit, so the changed unit is not compared",
    ("a digit changed", "math_reward"): "one of the ground truths has no unit, so the changed unit is not compared",
    ("a digit changed", "math_verify"): "decimals are compared to 6 places, so small numbers are all equal; the base of a "
    "number and the power of a unit are dropped; where theirs is right, one of the ground truths has no unit for ours to compare",
    ("a digit changed", "prime_math"): "numbers within 1e-4 of one another are equal, 1e-7 is taken for 0; the base of a "
    "number is dropped; numbers in a list are joined; where theirs is right, one of the ground truths has no unit",
    ("a digit changed", "this project"): "by the second ground truth, which has no unit: a unit of one side only is ignored",
    ("bracket changed", "math_verify"): "an interval is open at infinity whatever is written; ours compares the bracket",
    ("brackets left out", "math_verify"): "an open interval equals a list of its ends",
    ("brackets left out", "prime_math"): "brackets are taken off before comparing",
    ("element left out", "math_verify"): "a list is a set, in which a value that occurs twice counts once",
    ("fraction rounded to 6 places", "math_verify"): "decimals are compared to 6 places",
    ("root rounded to 6 places", "math_verify"): "decimals are compared to 6 places",
    ("or another", "math_reward"): "all from `\\text{ ` on is cut off as a unit, so a second guess is free",
    ("or another", "prime_math"): "all from `\\text{ ` on is cut off as a unit, so a second guess is free",
    ("sum not worked out", "math_verify"): "the value is computed, so the question itself is an answer",
}  # fmt: skip

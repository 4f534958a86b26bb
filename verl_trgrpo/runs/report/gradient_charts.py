"""The picture that ``verl-trgrpo analyze`` drew, with its figures in words."""

from __future__ import annotations

import json
from pathlib import Path

from verl_trgrpo.runs.charts import Chart, number


def gradient_chart(path: Path, place: int) -> Chart:
    """Return the picture that belongs to a ``gradients.json``.

    Args:
        path: as ``verl-trgrpo analyze`` writes it, with ``gradients.png`` beside it.
        place: number of this file in the report, for the name of the picture.

    Raises:
        ValueError: when the file does not hold such figures, or the picture is not there.
    """
    try:
        figures = json.loads(path.read_text(encoding="utf-8"))
        tokens, envelope = int(figures["tokens"]), figures["envelope"]
        low, high = float(envelope["lowest"]), float(envelope["highest"])
        all_hold = "All" if envelope["holds"] else "NOT all"
        shares = "; ".join(
            f"{name}: {', '.join(number(float(share)) for share in effect['share_at_parameters'])}"
            for name, effect in figures["shapings"].items()
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a gradients.json of `verl-trgrpo analyze` ({type(error).__name__}: {error}); check --gradients"
        ) from error
    picture = path.with_suffix(".png")
    if not picture.is_file():
        raise ValueError(f"{picture} is missing, which `verl-trgrpo analyze` writes beside {path.name}; put it back")
    caption = f"As verl-trgrpo analyze drew it. {all_hold} of {tokens:,} tokens lie within the envelope 1 - p to sqrt(2) (1 - p)."
    alt = (
        "Four panels: gradient norm of every token against 1 - p at the logits with its envelope, and by the parameters; shares "
        f"by quarter of probability; cosines between the quarters' updates. {all_hold} of {tokens:,} tokens lie within the "
        f"envelope: their norms are {low:.4f} to {high:.4f} times 1 - p. Shares of the summed gradient norms by the parameters, "
        f"rarest quarter first: {shares}."
    )
    return Chart(f"gradients-{place}", picture.read_bytes(), alt, caption, wide=True)

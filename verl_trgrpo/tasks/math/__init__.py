"""Mathematics data sets: DeepScaleR's training problems and its five test sets."""

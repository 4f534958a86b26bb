"""A real language model that fits two cores: SmolLM2-135M-Instruct, its warm start and its problems."""

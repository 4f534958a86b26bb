"""veRL on a machine without an accelerator: platform, FSDP2 engine, vLLM adaptations. Active only when chosen.

Chosen means ``VERL_PLATFORM=cpu`` together with ``+platform=cpu`` in the configuration; the launcher sets both when it
finds no accelerator.
"""

"""TR-GRPO (token-regulated GRPO, arXiv 2511.00066) as a plugin for veRL.

Importing this package is cheap and needs neither veRL nor torch; the work is in its sub-packages.
"""

__version__ = "0.1.0"

"""Register TR-GRPO with veRL, which imports this module through the entry-point group ``verl.plugins``.

This happens in the driver and in every Ray worker, so it has to be cheap and must not affect runs that do not ask for it.
"""

import logging

from verl_trgrpo.common.extras import missing_extra
from verl_trgrpo.common.text import for_terminal

logger = logging.getLogger(__name__)

# These modules register on import. They import one another as modules, not names: whichever of them a program imports first
# imports veRL, which imports this one before the first is complete.
try:
    from verl_trgrpo.verl_plugin import advantage_estimator, policy_loss, ppo_loss
    from verl_trgrpo.verl_plugin.cpu import platform
    from verl_trgrpo.verl_plugin.loopback import bind_stores
    from verl_trgrpo.verl_plugin.resolvers import register_resolvers

    register_resolvers()
    bind_stores()
except Exception as error:
    # veRL reports a plugin that fails to load at DEBUG level only; the user would see "Unsupported loss mode" much later.
    logger.exception(
        "verl-trgrpo could not register with veRL: %s",
        for_terminal(missing_extra(error) or f"{error}; run `verl-trgrpo doctor` to find out why"),
    )
    raise

__all__ = ["advantage_estimator", "platform", "policy_loss", "ppo_loss"]

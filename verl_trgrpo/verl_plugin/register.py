"""Registers TR-GRPO with veRL. veRL imports this module through the entry-point group ``verl.plugins``.

It happens in the driver and in every Ray worker, so it must stay cheap and must not touch runs that do not ask for it.
"""

import logging

logger = logging.getLogger(__name__)


# These modules register on import, and import one another as modules, not names: whichever of them a program imports first
# imports veRL, which imports this one before the first is complete.
try:
    from verl_trgrpo.verl_plugin import advantage_estimator, policy_loss, ppo_loss
    from verl_trgrpo.verl_plugin.cpu import platform
    from verl_trgrpo.verl_plugin.resolvers import register_resolvers

    register_resolvers()
except Exception:
    # veRL reports a plugin that fails to load at DEBUG level only; the user would see "Unsupported loss mode" much later.
    logger.exception("verl-trgrpo could not register with veRL; run `verl-trgrpo doctor` to find out why")
    raise

__all__ = ["advantage_estimator", "platform", "policy_loss", "ppo_loss"]

"""Make the configuration files of ``verl_trgrpo`` known to every Hydra application, stock veRL's included."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from verl_trgrpo.config import OWN_CONFIGS
from verl_trgrpo.verl_plugin.resolvers import register_resolvers


class TRGRPOSearchPathPlugin(SearchPathPlugin):
    """Append the package's configuration groups (``algorithm``, ``shaping``, ``agent``, ``platform``) to Hydra's search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        # Appended, not prepended: the application's own files win where names collide.
        search_path.append(provider="verl-trgrpo", path=f"file://{OWN_CONFIGS}")
        register_resolvers()

"""Make the words of ``more_methods`` known to every Hydra application, stock veRL's included."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class MoreMethodsSearchPathPlugin(SearchPathPlugin):
    """Append the package's options of the groups ``algorithm`` and ``agent`` to Hydra's search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append(provider="more-methods", path="pkg://more_methods.config")

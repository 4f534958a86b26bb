"""The tool ``search`` for veRL's tool agent loop."""

from __future__ import annotations

from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from verl_trgrpo.tasks.search_qa.client import shared_client
from verl_trgrpo.tasks.search_qa.options import read_options


class SearchTool(BaseTool):
    """One search per call. A server that fails is an observation that the model can read, never an exception.

    config: ``type: native`` and the keys of `SearchOptions`; see ``search_tool.yaml``, which has the schema, too.
    """

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema) -> None:
        super().__init__(config, tool_schema)
        self._options = read_options({name: value for name, value in config.items() if name != "type"})

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float, dict[str, float]]:
        """Return the passages for ``parameters["query"]``, reward 0.0, and whether the search failed."""
        query = parameters.get("query") if isinstance(parameters, dict) else None
        if not isinstance(query, str) or not query.strip():
            text = 'The search failed: it needs one parameter "query", a text that is not empty.'
            return ToolResponse(text=text), 0.0, {"failed_searches": 1.0}
        result = await shared_client(self._options).search(query)
        return ToolResponse(text=result.text), 0.0, {"failed_searches": float(bool(result.failure))}

"""A retrieval server that misbehaves on demand, real sockets and real HTTP."""

import asyncio
import contextlib
import json

import pytest
from aiohttp import web

from verl_trgrpo.tasks.search_qa import client as client_module

PASSAGE = {"document": {"id": "1", "contents": '"Rome"\nRome is in Italy.'}, "score": 2.0}


class Server:
    """Answers in Search-R1's protocol; `behave` may be set to a coroutine function that answers instead."""

    def __init__(self):
        self.requests = []
        self.headers = []
        self.behave = None
        self.url = ""
        self.at_once = self.most_at_once = 0

    async def retrieve(self, request):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            self.requests.append(json.loads(await request.read()))
            self.headers.append(dict(request.headers))
            if self.behave is not None:
                return await self.behave(len(self.requests))
            return self.answer()
        finally:
            self.at_once -= 1

    def answer(self):
        return web.json_response({"result": [[PASSAGE]] * len(self.requests[-1]["queries"])})


@contextlib.asynccontextmanager
async def running_server():
    server = Server()
    application = web.Application()
    application.router.add_post("/retrieve", server.retrieve)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture
def with_server():
    """Runs ``async def scenario(server)`` against a fresh server."""

    def run(scenario):
        async def main():
            async with running_server() as server:
                try:
                    return await asyncio.wait_for(scenario(server), 600)
                finally:
                    for client in client_module._clients.get(asyncio.get_running_loop(), {}).values():
                        await client.close()

        return asyncio.run(main())

    return run

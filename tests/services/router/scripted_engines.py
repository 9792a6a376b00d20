"""Two decode workers whose engines are scripts in place of Dynamo's runtime: no process, no NATS.

For what a router makes of an engine's tokens. How it fares with real workers and a real Dynamo is
tested with `scripted_worker`.
"""

from types import SimpleNamespace


class Engines:
    """Dynamo's runtime, endpoint and client of two decode workers; `outputs` come one a request."""

    def __init__(self, outputs):
        self.outputs = list(outputs)
        self.workers, self.prompts = [], []

    def endpoint(self, path):
        ids = [1, 2] if "backend" in path else []

        async def client():
            return SimpleNamespace(instance_ids=lambda: ids, direct=self.direct)

        return SimpleNamespace(client=client)

    async def direct(self, request, worker_id, **_):
        self.workers.append(worker_id)
        self.prompts.append(tuple(request["token_ids"]))
        return self._chunks(self.outputs.pop(0))

    async def _chunks(self, token_ids):
        for token_id in token_ids:
            yield {"token_ids": [token_id]}
        yield {"token_ids": [], "finish_reason": "stop"}

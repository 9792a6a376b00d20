"""GET /v1/usage: a team reads its own ledger, in exact decimals."""

from tests.fixtures.wait import until
from tests.services.gateway.scripted_upstream import ScriptedUpstream
from tests.services.gateway.world import Gateway, Key, World, ask


async def test_usage_of_the_callers_team_can_be_read(
    world: World, gateway: Gateway, key: Key, upstream: ScriptedUpstream
) -> None:
    mine = await world.new_key()
    async with gateway.client(mine) as http:

        async def is_served() -> bool:
            return (await http.get("/v1/models")).status_code == 200

        await until(is_served)
        request_id = await ask(gateway, mine)
        await world.the_event(request_id)
        usage = (await http.get("/v1/usage")).json()
        past = (await http.get("/v1/usage?start=2020-01-01&end=2020-02-01")).json()
        wrong = await http.get("/v1/usage?start=yesterday")
        backwards = await http.get("/v1/usage?start=2020-02-01&end=2020-01-01")

    assert usage["team_id"] == mine.team_id
    line = usage["data"][0]
    assert (line["model"], line["key_id"], line["requests"]) == ("scripted", mine.key_id, 1)
    assert (line["prompt_tokens"], line["cached_tokens"], line["completion_tokens"]) == (12, 4, 5)
    # 8 tokens at 1, 4 at 0.1 and 5 at 2 dollars for a million
    assert line["cost_usd"].rstrip("0") == "0.0000184"
    assert past["data"] == []
    assert wrong.json()["error"]["param"] == "start"
    assert backwards.json()["error"]["param"] == "end"

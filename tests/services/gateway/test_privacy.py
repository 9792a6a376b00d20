"""What the gateway writes down holds no key, prompt or completion."""

from pathlib import Path

from tests.services.gateway.scripted_upstream import ScriptedUpstream
from tests.services.gateway.world import Key, World, ask, chat


def all_bytes(folder: Path) -> bytes:
    """Every file of a folder, put together."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_no_secret_is_in_a_log_or_a_spool(
    world: World, key: Key, upstream: ScriptedUpstream, spool_dir: Path
) -> None:
    marker = "moby-dick-prompt"
    env = {"OBSERVE_LOG_LEVEL": "debug", "OBSERVE_TRACE_DIR": str(spool_dir / "traces")}
    with world.gateway(spool_dir=spool_dir, env=env) as gateway:
        await gateway.until_ready()
        wrong = Key("", "", "mr-00000000-" + "y" * 43)
        async with gateway.client(key) as http, gateway.client(wrong) as stranger:
            for script in ("", "die_after=2", "status=500", "status=500 html=1", "status=401"):
                for is_stream in (True, False):
                    body = chat(f"{script} {marker}", stream=is_stream, user=f"{marker}-user")
                    await http.post("/v1/chat/completions", json=body)
            await http.post("/v1/chat/completions", json=chat(model=f"{marker}-model"))
            await http.post("/v1/chat/completions", json=chat(temperature=f"{marker}-bad"))
            await http.post("/v1/chat/completions", content=f'{{"{marker}": '.encode())
            await stranger.post("/v1/chat/completions", json=chat(marker))
        request_id = await ask(gateway, key, marker)
        gateway.process.until_logged(request_id)
        gateway.process.kill()

    written = gateway.process.log().encode() + all_bytes(spool_dir)
    assert request_id.encode() in written, "looked in the wrong place"
    secret_part = key.text.removeprefix(f"mr-{key.key_id}-").encode()
    for secret in (secret_part, b"y" * 43, marker.encode(), "wörd".encode(), b"w\\u00f6rd"):
        assert secret not in written, secret

"""The admin API: what it answers, and errors in OpenAI's shape for whatever comes in."""

from tests.services.billing.world import World

PRICE = {
    "input_usd_per_mtok": "0.15",
    "cached_input_usd_per_mtok": "0.05",
    "output_usd_per_mtok": "0.6",
}


async def test_teams_are_created_and_listed_oldest_first(world: World) -> None:
    billing = await world.start()

    names = ["zeta", "alpha", "Ünïcode & Söhne"]
    for name in names:
        await billing.create_team(name)

    teams = (await billing.call("GET", "/teams"))["data"]
    assert [team["name"] for team in teams] == names
    assert all(not team["is_suspended"] for team in teams)


async def test_a_price_is_a_new_row_and_the_old_one_stays(world: World) -> None:
    billing = await world.start()

    first = await billing.set_price("org/model", "0.15", "0.05", "0.60")
    second = await billing.set_price("org/model", "1", "0", "999999999.999999999")

    prices = (await billing.call("GET", "/prices"))["data"]
    assert prices == [first, second]
    assert first["output_usd_per_mtok"] == "0.6"
    assert second["output_usd_per_mtok"] == "999999999.999999999"
    assert first["effective_from"] < second["effective_from"]


async def test_only_the_admin_key_opens_the_api(world: World) -> None:
    billing = await world.start()
    billing.admin.headers.pop("authorization")

    for authorization in (None, "", "Bearer", "Bearer wrong", "Basic YTpi", "Bearer \u00fc"):
        headers: dict[bytes, bytes] = {}
        if authorization is not None:
            headers[b"authorization"] = authorization.encode()
        for method, path in (
            ("GET", "/admin/v1/teams"),
            ("POST", "/admin/v1/teams"),
            ("GET", "/x"),
        ):
            response = await billing.admin.request(method, path, headers=headers, content=b"{")
            assert response.status_code == 401, (authorization, path)
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["www-authenticate"] == "Bearer"
    assert (await billing.admin.get("/healthz")).status_code == 200


async def test_errors_have_the_shape_of_openai(world: World) -> None:
    billing = await world.start()
    team = await billing.create_team("acme")
    expected: list[tuple[str, str, object, int, str, str | None]] = [
        ("GET", "/nothing", None, 404, "not_found", None),
        ("PATCH", "/teams", None, 405, "not_allowed", None),
        ("POST", "/teams", {"name": "acme"}, 409, "team_name_taken", None),
        ("POST", "/teams", {}, 400, "invalid_value", "name"),
        ("POST", "/teams", {"name": "  "}, 400, "invalid_value", "name"),
        ("POST", "/teams", {"name": 5}, 400, "invalid_value", "name"),
        ("POST", "/teams", {"name": "a\0b"}, 400, "invalid_value", "name"),
        ("POST", "/teams", {"name": "x", "nmae": "y"}, 400, "invalid_value", "nmae"),
        ("POST", "/teams", [], 400, "invalid_value", None),
        ("POST", "/teams/team-none/keys", {}, 404, "team_not_found", None),
        ("GET", "/teams/team-none/keys", None, 404, "team_not_found", None),
        ("DELETE", "/keys/ffffffff", None, 404, "key_not_found", None),
        ("GET", "/usage", None, 400, "invalid_value", "team_id"),
        ("GET", "/usage?team_id=team-none", None, 404, "team_not_found", None),
        ("GET", f"/usage?team_id={team}&start=soon", None, 400, "invalid_value", "start"),
        (
            "GET",
            f"/usage?team_id={team}&start=2026-02-01&end=2026-01-01",
            None,
            400,
            "invalid_value",
            None,
        ),
    ]

    for method, path, body, status, code, param in expected:
        response = await billing.admin.request(method, f"/admin/v1{path}", json=body)
        error = response.json()["error"]
        found = (response.status_code, error["code"], error["param"])
        assert found == (status, code, param), f"{method} {path}"
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert error["message"]


async def test_a_body_that_is_no_json_is_refused(world: World) -> None:
    billing = await world.start()

    response = await billing.admin.post(
        "/admin/v1/teams", content=b"{nope", headers={"content-type": "application/json"}
    )

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


async def test_a_price_is_decimal_text_that_can_be_kept_exactly(world: World) -> None:
    billing = await world.start()

    for text in ("-1", "1e3", "0.1234567891", "1234567890", "NaN", "", "0,15", " 1", "1\n", 0.15):
        response = await billing.admin.put(
            "/admin/v1/prices/smollm2", json={**PRICE, "output_usd_per_mtok": text}
        )
        assert response.status_code == 400, repr(text)
        assert response.json()["error"]["param"] == "output_usd_per_mtok"
    assert (await billing.call("GET", "/prices"))["data"] == []


async def test_names_that_cannot_be_stored_break_nothing(world: World) -> None:
    billing = await world.start()

    for method, path in (
        ("PUT", "/prices/a%00b"),
        ("PUT", f"/prices/{'m' * 5_000}"),
        ("DELETE", "/keys/%00"),
        ("GET", "/teams/%00/keys"),
        ("GET", "/usage?team_id=%00"),
    ):
        body = PRICE if method == "PUT" else None
        response = await billing.admin.request(method, f"/admin/v1{path}", json=body)
        assert response.status_code in (400, 404), f"{method} {path}: {response.text}"
    assert await billing.create_team("still-there")

"""The demo account: a team, a key and a price for the local model, by billing's admin API.

Running it again changes nothing: the team is found by its name, the price is set only while the
model has none, and a known key is kept while billing still knows it.
"""

import httpx

TEAM = KEY = "demo"
PRICE = {
    "input_usd_per_mtok": "0.10",
    "cached_input_usd_per_mtok": "0.01",
    "output_usd_per_mtok": "0.40",
}
TIMEOUT_S = 10.0


class DemoRefused(RuntimeError):
    """Billing answered, but not with what was asked for."""


class BillingAway(RuntimeError):
    """Billing does not answer, or not yet; trying again is safe."""


def ensure(admin_url: str, admin_key: str, known_key: str | None, model: str) -> str:
    """Makes what is missing of the demo account and returns a key that works.

    Raises BillingAway and DemoRefused.
    """
    headers = {"Authorization": f"Bearer {admin_key}"}
    with httpx.Client(
        base_url=f"{admin_url}/admin/v1", headers=headers, timeout=TIMEOUT_S, trust_env=False
    ) as admin:
        try:
            return _ensure(admin, known_key, model)
        except httpx.TransportError as error:
            raise BillingAway(f"{admin_url}: {error!r}") from error


def _ensure(admin: httpx.Client, known_key: str | None, model: str) -> str:
    if model not in {row["model"] for row in _rows(admin, "/prices")}:
        _call(admin, "PUT", f"/prices/{model}", PRICE)
    teams = {row["name"]: row["team_id"] for row in _rows(admin, "/teams")}
    team_id = teams.get(TEAM) or _call(admin, "POST", "/teams", {"name": TEAM})["team_id"]
    if known_key is not None and _key_id(known_key) in {
        row["key_id"] for row in _rows(admin, f"/teams/{team_id}/keys") if not row["is_revoked"]
    }:
        return known_key
    return str(_call(admin, "POST", f"/teams/{team_id}/keys", {"name": KEY})["key"])


def _key_id(key: str) -> str:
    """The middle of `mr-<key id>-<secret>`."""
    return key.split("-")[1] if key.count("-") > 1 else ""


def _rows(admin: httpx.Client, path: str) -> list[dict[str, str]]:
    rows = _call(admin, "GET", path)["data"]
    assert isinstance(rows, list)
    return rows


def _call(
    admin: httpx.Client, method: str, path: str, body: dict[str, str] | None = None
) -> dict[str, object]:
    response = admin.request(method, path, json=body)
    if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise BillingAway(f"{method} {path}: {response.status_code} {response.text[:300]}")
    if not response.is_success:
        raise DemoRefused(f"{method} {path}: {response.status_code} {response.text[:300]}")
    answer = response.json()
    assert isinstance(answer, dict)
    return answer

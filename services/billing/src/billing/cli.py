"""The command line `millrace`: teams, keys, prices and usage through billing's admin API.

It knows nothing of the database and holds no secret: address and admin key come from the
environment (`MILLRACE_ADMIN_URL`, `MILLRACE_ADMIN_KEY`) or from the nearest `.run/env`, which
`./tools/up` writes.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import quote

import httpx
import typer

TIMEOUT_S = 15.0

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Manage a Millrace platform.")
teams_app = typer.Typer(no_args_is_help=True, help="Teams: who pays.")
keys_app = typer.Typer(no_args_is_help=True, help="API keys of a team.")
prices_app = typer.Typer(no_args_is_help=True, help="What models cost.")
app.add_typer(teams_app, name="teams")
app.add_typer(keys_app, name="keys")
app.add_typer(prices_app, name="prices")

AsJson = Annotated[bool, typer.Option("--json", help="Print the API's answer as JSON.")]


@teams_app.command("create")
def create_team(name: str, as_json: AsJson = False) -> None:
    """Create a team."""
    team = _call("POST", "/teams", {"name": name})
    _show(team, as_json, f"Created team {team['name']} with the id {team['team_id']}.")


@teams_app.command("list")
def list_teams(as_json: AsJson = False) -> None:
    """List all teams."""
    answer = _call("GET", "/teams")
    _show_table(answer, as_json, ("team_id", "name", "is_suspended", "created_at"))


@keys_app.command("create")
def create_key(
    team: Annotated[str, typer.Argument(help="A team's id or name.")],
    name: Annotated[str, typer.Option(help="What the key is for.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Create a key and show it: this is the only time that it can be seen."""
    key = _call("POST", f"/teams/{_team_id(team)}/keys", {"name": name})
    _show(
        key,
        as_json,
        f"{key['key']}\n\nKeep it now: only its hash is stored, it cannot be shown again."
        f"\nIts id is {key['key_id']}; revoke it with: millrace keys revoke {key['key_id']}",
    )


@keys_app.command("list")
def list_keys(
    team: Annotated[str, typer.Argument(help="A team's id or name.")], as_json: AsJson = False
) -> None:
    """List a team's keys, never the keys themselves."""
    answer = _call("GET", f"/teams/{_team_id(team)}/keys")
    _show_table(answer, as_json, ("key_id", "name", "is_revoked", "created_at"))


@keys_app.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(help="The 8 digits after 'mr-'.")],
    as_json: AsJson = False,
) -> None:
    """End a key for ever; gateways refuse it within a second."""
    key = _call("DELETE", f"/keys/{quote(key_id, safe='')}")
    _show(key, as_json, f"Revoked key {key['key_id']} ({key['name']}).")


@prices_app.command("set")
def set_price(
    model: str,
    input_usd: Annotated[str, typer.Option("--input", help="USD per million prompt tokens.")],
    cached_usd: Annotated[
        str, typer.Option("--cached-input", help="USD per million prompt tokens from the cache.")
    ],
    output_usd: Annotated[str, typer.Option("--output", help="USD per million output tokens.")],
    as_json: AsJson = False,
) -> None:
    """Set a model's price from now on; what was used before keeps its price."""
    body = {
        "input_usd_per_mtok": input_usd,
        "cached_input_usd_per_mtok": cached_usd,
        "output_usd_per_mtok": output_usd,
    }
    price = _call("PUT", f"/prices/{quote(model, safe='')}", body)
    _show(price, as_json, f"{price['model']} costs this from {price['effective_from']} on.")


@prices_app.command("list")
def list_prices(as_json: AsJson = False) -> None:
    """List all prices, also those that have ended."""
    answer = _call("GET", "/prices")
    columns = (
        "model",
        "input_usd_per_mtok",
        "cached_input_usd_per_mtok",
        "output_usd_per_mtok",
        "effective_from",
    )
    _show_table(answer, as_json, columns)


@app.command("usage")
def usage(
    team: Annotated[str, typer.Argument(help="A team's id or name.")],
    start: Annotated[
        str | None, typer.Option(help="ISO date; default: start of the month.")
    ] = None,
    end: Annotated[str | None, typer.Option(help="ISO date; default: end of the month.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a team used and owes, by model and key, in UTC."""
    wanted = {"team_id": _team_id(team), "start": start, "end": end}
    query = {name: value for name, value in wanted.items() if value is not None}
    answer = _call("GET", "/usage", query=query)
    if as_json:
        _show(answer, as_json, "")
        return
    columns = (
        "model",
        "key_id",
        "requests",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
        "cost_usd",
    )
    typer.echo(_table(answer["lines"], columns))
    typer.echo(f"\nTotal {answer['total_cost_usd']} USD, {answer['start']} to {answer['end']}.")
    if answer["unpriced_events"]:
        typer.echo(f"{answer['unpriced_events']} events wait for a price and are not included.")


def main() -> None:
    """Entry point."""
    app()


@dataclass(frozen=True)
class _AdminApi:
    url: str
    key: str


def _call(
    method: str,
    path: str,
    body: dict[str, str] | None = None,
    query: dict[str, str] | None = None,
) -> dict[str, Any]:
    api = _find_api()
    try:
        response = httpx.request(
            method,
            f"{api.url}/admin/v1{path}",
            json=body,
            params=query,
            headers={"authorization": f"Bearer {api.key}"},
            timeout=TIMEOUT_S,
            trust_env=False,
        )
    except httpx.HTTPError as error:
        _fail(f"billing does not answer at {api.url}: {error}. Is the platform up?")
    if response.is_error:
        _fail(_error_message(response))
    answer: dict[str, Any] = response.json()
    return answer


def _error_message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return (
            f"{response.request.url} answered {response.status_code}; is that billing's admin API?"
        )


def _team_id(id_or_name: str) -> str:
    teams = _call("GET", "/teams")["data"]
    for team in teams:
        if id_or_name in (team["team_id"], team["name"]):
            return str(team["team_id"])
    _fail(f"no team has the id or name {id_or_name!r}. See: millrace teams list")


def _find_api() -> _AdminApi:
    names = ("MILLRACE_ADMIN_URL", "MILLRACE_ADMIN_KEY")
    found = {**_nearest_run_env(), **os.environ}
    missing = [name for name in names if not found.get(name)]
    if missing:
        _fail(
            f"{' and '.join(missing)} not set, and no .run/env above here has it. Run ./tools/up?"
        )
    url, key = (found[name] for name in names)
    return _AdminApi(url.rstrip("/"), key)


def _nearest_run_env() -> dict[str, str]:
    here = Path.cwd()
    for folder in (here, *here.parents):
        path = folder / ".run" / "env"
        if path.is_file():
            return _read_env(path.read_text(encoding="utf-8"))
    return {}


def _read_env(content: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in content.splitlines():
        name, is_assignment, value = line.strip().removeprefix("export ").partition("=")
        if is_assignment and not name.startswith("#"):
            found[name.strip()] = value.strip().strip("'\"")
    return found


def _show(answer: dict[str, Any], as_json: bool, words: str) -> None:
    typer.echo(json.dumps(answer) if as_json else words)


def _show_table(answer: dict[str, Any], as_json: bool, columns: Sequence[str]) -> None:
    _show(answer, as_json, "" if as_json else _table(answer["data"], columns))


def _table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    cells = [list(columns), *([_cell(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _cell(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "-"
        case _:
            return str(value)


def _fail(message: str) -> NoReturn:
    typer.echo(f"millrace: {message}", err=True)
    raise typer.Exit(1)

"""The admin key, checked before a request's body is even read."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from billing import keys
from billing.edge.http_errors import error_response

OPEN_PATHS = frozenset({"/healthz"})


class AdminKeyGuard:
    """Lets requests with the right bearer key through; only the key's digest is known here."""

    def __init__(self, app: ASGIApp, *, admin_key_sha256: bytes) -> None:
        self._app = app
        self._admin_key_sha256 = admin_key_sha256

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers 401 by itself, else passes on."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._is_admin(scope):
            await self._app(scope, receive, send)
            return
        refusal = error_response(
            401,
            "The admin API needs the admin key: send it as 'Authorization: Bearer <admin key>'.",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )
        await refusal(scope, receive, send)

    def _is_admin(self, scope: Scope) -> bool:
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and keys.is_key(key.strip(), self._admin_key_sha256)

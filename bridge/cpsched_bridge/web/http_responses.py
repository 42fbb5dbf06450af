"""Build HTTP responses (JSON, HTML and errors) with the bridge's headers."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def make_error_response(request: Request, text: str, status: int) -> Response:
    """Return an error response: JSON for paths below `/api`, otherwise text."""
    if request.scope["path"].startswith("/api/"):
        return to_json_response({"error": "; ".join(text.strip().splitlines())}, status)
    return PlainTextResponse(text, status, HEADERS)


def to_html_response(text: str, status: int = 200) -> Response:
    """Return an HTML response that clients revalidate before reuse."""
    return HTMLResponse(text, status, headers=HEADERS)


def to_json_response(content: dict[str, Any], status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(json.dumps(content), status, media_type="application/json", headers=HEADERS)

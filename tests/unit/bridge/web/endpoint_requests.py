"""Requests to a running endpoint."""

import urllib.error
import urllib.request


def address(endpoint):
    """Return the endpoint's host and port."""
    return "127.0.0.1", int(endpoint.url.rsplit(":", 1)[1].rstrip("/"))


def get(endpoint, path="", **headers):
    """Return the status, the headers and the text of a response."""
    request = urllib.request.Request(endpoint.url + path, headers=headers)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()

"""Serve metrics, health, the status page and the API over HTTP.

Only this package imports Starlette. The package never writes to the cluster or to the bridge's files and never waits
for the loop: responses are based on the last cycle. Links within pages are relative, so that a reverse proxy can serve
them under any prefix.
"""

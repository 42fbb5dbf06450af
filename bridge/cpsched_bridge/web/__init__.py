"""The HTTP endpoint: metrics and health, the status page and the API. The only package that imports Starlette.

Nothing here writes to the cluster or to the bridge's files, and nothing waits for the loop: answers come from the last
cycle. Links within pages are relative, so that a reverse proxy may serve them under any prefix.
"""

"""What is served over HTTP: metrics and health, the status page and the API. The only door to Starlette.

Nothing here writes to the cluster or to the bridge's files, and nothing waits for the loop: answers are made of what
the last cycle left. Addresses within pages are relative, so that a reverse proxy may put them under any prefix.
"""

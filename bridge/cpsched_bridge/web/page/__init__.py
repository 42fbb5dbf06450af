"""The status page: what waits and why, what runs where, what is planned; for people, and as JSON."""

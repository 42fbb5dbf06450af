"""PBS: a stand-in for its server and commands, a judge of its accounting log, and live tests.

What the stand-in does was measured on OpenPBS 23.06. `live` has the tests that hold the same against a real server.
"""

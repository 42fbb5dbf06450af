"""PBS: a stand-in for its server and commands, a checker for its accounting log, and live tests.

The stand-in behaves as measured on OpenPBS 23.06. `live` contains the tests that compare it with a real server.
"""

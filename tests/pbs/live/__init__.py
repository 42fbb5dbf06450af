"""Live tests against the PBS whose commands are on the path: `make test-pbs`."""

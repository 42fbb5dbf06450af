"""Adapters for cluster schedulers, and the interface that an adapter implements.

The project contains three adapters: `slurm`, `pbs` and `mock`, a simulated cluster. `shared` is not an adapter.
A site can add a module with the same interface, for example

    # mysite/lsf.py
    from cpsched_bridge.settings import Section

    class Options(Section):
        host: str = "localhost"

    def connect(options: Options) -> Backend:
        return LsfBackend(options.host)

    def can(options: Options) -> Capabilities:
        return Capabilities(priorities=True, decision_limit_s=0.5)

`cpsched_bridge/ports.py` specifies `Backend`. `cpsched_bridge/adapters/mock/mock_backend.py` is a complete example.
A backend raises three errors from `cpsched_bridge.errors`:

- `BackendUnavailable`: the cluster could not be reached, and no command took effect.
- `BackendTimeout`: the cluster did not answer in time. The next reading shows which commands took effect.
- `CommandRefused`: the cluster refused the whole call.

The settings file names the adapter and holds its options: `adapter: mysite.lsf`, or `adapter: lsf` if a package
registers `lsf = "mysite.lsf"` under the entry point `cpsched.adapters`. Only the command line looks up adapters. It
imports an adapter on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from cpsched_bridge.ports import Backend, Capabilities

if TYPE_CHECKING:
    from cpsched_bridge.settings import Section


class Adapter(Protocol):
    """A module or class that connects the bridge to one kind of cluster.

    `can` is optional and defaults to `Capabilities()`.
    """

    @property
    def Options(self) -> type[Section]:  # noqa: N802 - the name of a class
        """The adapter's settings class. Each field has a default and a description."""
        ...

    def connect(self, options: Any) -> Backend:
        """Return the backend for these `Options`.

        The backend may defer connecting to the cluster until its first call. Raise `SettingsError` if options
        contradict each other.
        """
        ...

    def can(self, options: Any) -> Capabilities:
        """Return the adapter's capabilities under these `Options`.

        Do not contact the cluster.
        """
        ...

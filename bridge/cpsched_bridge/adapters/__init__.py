"""The clusters the bridge can stand beside, and what an adapter must offer.

Three adapters are part of the project: `slurm`, `pbs`, and `mock`, a simulated cluster (`shared` is none).
Another one is a module of the same shape anywhere, such as

    # mysite/lsf.py
    from cpsched_bridge.settings import Section

    class Options(Section):
        host: str = "localhost"

    def connect(options: Options) -> Backend:
        return LsfBackend(options.host)

    def can(options: Options) -> Capabilities:
        return Capabilities(priorities=True, decision_limit_s=0.5)

Whoever writes one reads two more files: `cpsched_bridge/ports.py`, which says what a `Backend` must do, and
`cpsched_bridge/adapters/mock/mock_backend.py`, which is a whole one. A backend turns what goes wrong into three errors
of
`cpsched_bridge.errors`: `BackendUnavailable` (the cluster was not reached, nothing took effect), `BackendTimeout` (no
answer in time, the next reading shows what took effect) and `CommandRefused` (a call was refused as a whole).

The settings file names the adapter and holds its options: `adapter: mysite.lsf`, or `adapter: lsf` where a package
offers `lsf = "mysite.lsf"` under the entry point `cpsched.adapters`. Only the command line looks adapters up, and an
adapter is imported when it is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from cpsched_bridge.ports import Backend, Capabilities

if TYPE_CHECKING:
    from cpsched_bridge.settings import Section


class Adapter(Protocol):
    """A module, or a class, that knows one kind of cluster. `can` may be missing: then it is `Capabilities()`."""

    @property
    def Options(self) -> type[Section]:  # noqa: N802 - the name of a class
        """The adapter's part of the settings file, each field with a default and a description."""
        ...

    def connect(self, options: Any) -> Backend:
        """The backend that these `Options` ask for.

        The cluster itself may be reached later, with the first call. Raises `SettingsError` for options that fit the
        fields but not each other.
        """
        ...

    def can(self, options: Any) -> Capabilities:
        """What these `Options` let it do. The cluster is not asked."""
        ...

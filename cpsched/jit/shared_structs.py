"""Shared structs: mutable state with named fields, for Python and kernels.

A subclass of `SharedStruct` declares each field once, with its type. Python accesses attributes. Kernels receive a
pointer and access the same fields by the same names. Nothing is compiled and Numba is not imported until a kernel needs
a shared struct.

The fields are in a struct: a sequence of 8-byte words. A number takes one word, another shared struct one word (its
address), and an array `_AXES_OFFSET` words plus two per axis. Python can thus write the struct without a compiled
function.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from struct import pack_into
from typing import Annotated, Any, ClassVar, Self, cast, dataclass_transform, get_type_hints

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class KernelArrayType:
    """The type of a kernel's array: element type, axes, and whether kernels write it."""

    dtype: str
    axes: int
    written: bool

    def require_match(self, name: str, array: object) -> None:
        """Raise `TypeError` unless `array` has this type and is C-contiguous."""
        if not (
            isinstance(array, np.ndarray)
            and array.dtype == self.dtype
            and array.ndim == self.axes
            and array.flags.c_contiguous
            and (array.flags.writeable or not self.written)
        ):
            raise TypeError(f"{name}: must be a contiguous {self.dtype} array with {self.axes} axes")


Column = Annotated[npt.NDArray[np.int64], KernelArrayType("int64", 1, True)]
"""A column of integers that kernels may write."""
Matrix = Annotated[npt.NDArray[np.int64], KernelArrayType("int64", 2, True)]
FixedColumn = Annotated[npt.NDArray[np.int64], KernelArrayType("int64", 1, False)]
"""A column of integers that kernels only read. It may be read-only."""
FixedMatrix = Annotated[npt.NDArray[np.int64], KernelArrayType("int64", 2, False)]
Flags = Annotated[npt.NDArray[np.bool_], KernelArrayType("bool", 1, True)]
FixedFlags = Annotated[npt.NDArray[np.bool_], KernelArrayType("bool", 2, False)]
Reals = Annotated[npt.NDArray[np.float64], KernelArrayType("float64", 1, True)]
"""A column of real numbers that kernels may write."""
FixedReals = Annotated[npt.NDArray[np.float64], KernelArrayType("float64", 1, False)]


def array_type_from_hint(hint: Any) -> KernelArrayType | None:
    """Return the array type in a type hint, or None for any other hint."""
    return next((part for part in getattr(hint, "__metadata__", ()) if isinstance(part, KernelArrayType)), None)


@dataclass_transform(eq_default=False)
class SharedStruct:
    """State with named fields: numbers, arrays and other shared structs.

    Kernels do not access fields of other types. In a class declared with `grows=True`, kernels may replace arrays with
    longer ones. Python cannot read these arrays directly. It calls a kernel that returns copies.
    """

    _hints: ClassVar[dict[str, Any]]
    """The fields that kernels access: integers first, then real numbers."""
    _all_fields: ClassVar[tuple[str, ...]]
    _numbers: ClassVar[tuple[str, ...]]
    """The names of the integers, then of the real numbers. Python and kernels access each number in the same eight
    bytes.
    """
    _grows: ClassVar[bool] = False

    def __init_subclass__(cls, grows: bool = False) -> None:
        cls._grows = grows
        cls._all_fields = tuple(name for name, hint in cls.__annotations__.items() if "ClassVar" not in str(hint))
        integers, reals = (
            tuple(name for name in cls._all_fields if cls.__annotations__[name] in kind)
            for kind in (("int", int), ("float", float))
        )
        cls._numbers = integers + reals
        for at, name in enumerate(cls._numbers):
            setattr(cls, name, _integer_property(at) if name in integers else _real_property(at))

    def __init__(self, *values: Any, **named: Any) -> None:
        given = dict(zip(self._all_fields, values, strict=False)) | named
        if missing := set(self._all_fields) ^ set(given):
            raise TypeError(f"{type(self).__name__}: {', '.join(sorted(missing))} missing or unknown")
        self._given = given
        self._expose_fields(given)

    def set_fields(self, **named: Any) -> None:
        """Set fields to other values, for example to replace an array with a longer one."""
        if "_given" in self.__dict__:
            self._given |= named
        else:
            self._memory.write(self._require_array_types(named))
        self._expose_fields(named)

    def _expose_fields(self, given: dict[str, Any]) -> None:
        """Expose fields as attributes, except numbers, which Python reads from the struct."""
        for name, value in given.items():
            if not (name in self._numbers or (self._grows and isinstance(value, np.ndarray))):
                setattr(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields by name, to copy or pickle.

        Raise `TypeError` if kernels may have replaced arrays.
        """
        if "_given" in self.__dict__:
            return dict(self._given)
        if self._grows:
            raise TypeError(f"{type(self).__name__}: cannot be copied after a kernel has used it")
        return {name: getattr(self, name) for name in self._all_fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        SharedStruct.__init__(self, **state)

    def view_with(self, named: dict[str, Any]) -> Self:
        """Return a view whose `named` fields differ in Python, but not in kernels."""
        found = object.__new__(type(self))
        found.__dict__ |= self.__dict__ | named | {"_origin": self}
        found.__dict__.pop("_given", None)
        return found

    def __getattr__(self, name: str) -> Any:
        """Build the struct that kernels use when it is first accessed."""
        if name == "_memory":
            self._memory = self._origin._memory if "_origin" in self.__dict__ else self._filled_struct()
            return self._memory
        if name == "_address":
            self._address = self._memory.address
            return self._address
        if name == "_integers":
            self._integers = (ctypes.c_int64 * len(self._numbers)).from_address(self._address)
            return self._integers
        if name == "_reals":
            self._reals = (ctypes.c_double * len(self._numbers)).from_address(self._address)
            return self._reals
        raise AttributeError(name)

    def _filled_struct(self) -> Any:
        """Return the struct, filled with the given values."""
        memory = StructMemory(type(self))
        memory.write(self._require_array_types(self._given))
        del self._given
        return memory

    def _require_array_types(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return `given`. Raise `TypeError` for an array of the wrong type."""
        for name, hint in kernel_fields(type(self)).items():
            if name in given and (kind := array_type_from_hint(hint)):
                kind.require_match(f"{type(self).__name__}.{name}", given[name])
        return given


def kernel_fields(cls: type[SharedStruct]) -> dict[str, Any]:
    """Return the type hints of the fields that kernels access, numbers first."""
    if "_hints" not in cls.__dict__:
        hints = get_type_hints(cls, include_extras=True)
        seen = {name: hints[name] for name in cls._all_fields}
        numbers = {name: seen[name] for name in cls._numbers}
        others = {
            name: hint
            for name, hint in seen.items()
            if array_type_from_hint(hint) or (isinstance(hint, type) and issubclass(hint, SharedStruct))
        }
        cls._hints = numbers | others
    return cls._hints


def _integer_property(at: int) -> property:
    """Return a property for the integer at position `at`, specialized for speed."""

    def get(self: SharedStruct) -> int:
        return self._integers[at]

    def put(self: SharedStruct, value: int) -> None:
        self._integers[at] = value

    return property(get, put)


def _real_property(at: int) -> property:
    """Return a property for the real number at position `at`."""

    def get(self: SharedStruct) -> float:
        return self._reals[at]

    def put(self: SharedStruct, value: float) -> None:
        self._reals[at] = value

    return property(get, put)


_AXES_OFFSET = 5
"""Number of words of an array before its axes: reference counter, owner, two sizes, and first element.

Two words per axis follow: its length and its stride.
"""


class StructFieldOffsets:
    """The byte offsets and formats of a `SharedStruct` class's fields in its struct."""

    def __init__(self, cls: type[SharedStruct]) -> None:
        self.places: dict[str, tuple[int, str]] = {}
        """First byte and `struct` format code of each field. The code is empty for an array."""
        at = 0
        for name, hint in kernel_fields(cls).items():
            kind = array_type_from_hint(hint)
            self.places[name] = at, "" if kind else "d" if hint is float else "q"
            at += 8 * (_AXES_OFFSET + 2 * kind.axes if kind else 1)
        self.arrays = [at for at, code in self.places.values() if not code]
        self.memory: Any = ctypes.c_int64 * (at // 8)


field_offsets_of = cache(StructFieldOffsets)


@cache
def _numba_runtime() -> tuple[Any, Any]:
    """Return a function that writes an array to an address, and the class `MemInfo`.

    The function counts a reference to the array.
    """
    from numba.core.runtime import nrt

    runtime: Any = nrt
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
    return kind(runtime._nrt.c_helpers["adapt_ndarray_from_python"]), runtime.MemInfo


class StructMemory:
    """The memory of one shared struct, initially zero. It owns its arrays."""

    def __init__(self, cls: type[SharedStruct]) -> None:
        self._fields = field_offsets_of(cast(Any, cls))
        self._write_array, self._mem_info = _numba_runtime()
        self._words = self._fields.memory()
        self.address = ctypes.addressof(self._words)

    def write(self, values: Mapping[str, Any]) -> None:
        """Set the fields in `values`, whose types must match. Ignore other names."""
        for name, (at, code) in self._fields.places.items():
            if name not in values:
                continue
            value = values[name]
            if code:
                pack_into(code, self._words, at, value._address if isinstance(value, SharedStruct) else value)
                continue
            before = self._words[at // 8]
            self._write_array(value, self.address + at)
            self._release(before)

    def __del__(self) -> None:
        for at in self._fields.arrays:
            self._release(self._words[at // 8])

    def _release(self, counter: int) -> None:
        """Release a reference to an array. `MemInfo` frees the array after the last one."""
        if counter:
            self._mem_info(counter)

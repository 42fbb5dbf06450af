"""The kernels' view of a `SharedStruct`: a pointer to a struct with its fields.

The struct belongs to the Python object, which outlives every call of a kernel. Therefore, kernels read its fields
without reference counting, which would take longer than a small kernel itself. This imposes a rule on kernels: a local
variable that holds an array of a shared struct becomes invalid when the field is set to a longer array, as by
`grow`. Read the field again afterwards.
"""

# mypy: disable-error-code="no-untyped-call, untyped-decorator, override"
# Numba has no type annotations.

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin

from numba.core import cgutils, imputils, types
from numba.core.datamodel import models
from numba.core.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    lower_setattr_generic,
    register_model,
    unbox,
)
from numba.core.typing.templates import AttributeTemplate

from cpsched.jit.shared_structs import SharedStruct, array_type_from_hint, kernel_fields

read_as: Any = lower_getattr_generic
write_as: Any = lower_setattr_generic
in_kernels: Any = intrinsic


class StructContentType(types.Type):
    """The struct of a `SharedStruct` class."""

    def __init__(self, name: str, fields: list[tuple[str, Any]]) -> None:
        super().__init__(f"{name}'s struct")
        self.fields = fields


@register_model(StructContentType)
class _StructModel(models.StructModel):
    def __init__(self, manager: Any, type_: StructContentType) -> None:
        super().__init__(manager, type_, type_.fields)


class SharedStructType(types.Type):
    """The type of one shared struct class, identified by the class name."""

    def __init__(self, name: str, fields: list[tuple[str, Any]]) -> None:
        super().__init__(name)
        self.field_dict = dict(fields)
        self.struct = StructContentType(name, fields)


register_model(SharedStructType)(models.OpaqueModel)


@unbox(SharedStructType)
def _unbox(type_: Any, handle: Any, c: Any) -> Any:
    """Convert a Python shared struct to the address of its struct."""
    address = c.pyapi.object_getattr_string(handle, "_address")
    failed = cgutils.is_null(c.builder, address)
    place = cgutils.alloca_once(c.builder, cgutils.voidptr_t)
    with c.builder.if_then(c.builder.not_(failed)):
        c.builder.store(c.pyapi.long_as_voidptr(address), place)
        c.pyapi.decref(address)
    return NativeValue(c.builder.load(place), is_error=failed)


def _struct_field_proxy(context: Any, builder: Any, type_: Any, pointer: Any) -> Any:
    """Return an accessor for the fields at a pointer."""
    place = context.data_model_manager[type_.struct].get_value_type().as_pointer()
    return cgutils.create_struct_proxy(type_.struct)(context, builder, ref=builder.bitcast(pointer, place))


@infer_getattr
class _StructFieldAttributes(AttributeTemplate):
    key = SharedStructType

    def generic_resolve(self, type_: Any, name: str) -> Any:
        """Return the type of a field."""
        return type_.field_dict.get(name)


@read_as(SharedStructType)
def _read_field(context: Any, builder: Any, type_: Any, pointer: Any, name: str) -> Any:
    """Read a field without counting a reference to an array."""
    value, field = getattr(_struct_field_proxy(context, builder, type_, pointer), name), type_.field_dict[name]
    if isinstance(field, types.Array):
        array = context.make_array(field)(context, builder, value=value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        value = array._getvalue()
    return imputils.impl_ret_untracked(context, builder, field, value)


@write_as(SharedStructType)
def _write_field(context: Any, builder: Any, signature: Any, arguments: Any, name: str) -> None:
    """Set a field. Do nothing if it is an array and the value is the same array."""
    type_, given = signature.args
    field = type_.field_dict[name]
    value = context.cast(builder, arguments[1], given, field)
    fields = _struct_field_proxy(context, builder, type_, arguments[0])
    if not isinstance(field, types.Array):
        setattr(fields, name, value)
        return

    old = getattr(fields, name)
    make = context.make_array(field)
    same = builder.icmp_unsigned("==", make(context, builder, value=old).data, make(context, builder, value=value).data)
    with builder.if_then(builder.not_(same)):
        context.nrt.incref(builder, field, value)
        context.nrt.decref(builder, field, old)
        setattr(fields, name, value)


@in_kernels(prefer_literal=True)
def owned_array(typing_context: Any, handle: Any, name: Any) -> Any:
    """Return an array of a shared struct with a counted reference.

    A caller that stores the array needs this reference: `owned(handle, "field")`.
    """
    field = handle.field_dict[name.literal_value]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = getattr(_struct_field_proxy(context, builder, handle, arguments[0]), name.literal_value)
        return imputils.impl_ret_borrowed(context, builder, field, value)

    return field(handle, name), generate


def make_grow_columns_intrinsic(one: Any) -> Any:
    """Return the kernels' version of `cpsched.jit.decorators.ColumnGrower`.

    It passes each field to the function `one` as a separate shared struct.
    """

    @in_kernels(prefer_literal=True)
    def grow(typing_context: Any, handle: Any, names: Any, used: Any, room: Any) -> Any:
        function = typing_context.resolve_value_type(one)
        (held,) = {signature[0] for signature in one.dispatcher.overloads}
        signature = function.get_call_type(typing_context, (held, types.int64, types.int64), {})

        def generate(context: Any, builder: Any, given: Any, arguments: Any) -> Any:
            call, fields = (
                context.get_function(function, signature),
                _struct_field_proxy(context, builder, handle, arguments[0]),
            )
            context.add_linking_libs(call.libs)
            numbers = [context.cast(builder, arguments[i], given.args[i], types.int64) for i in (2, 3)]
            for name in names.literal_value.split():
                place = builder.bitcast(fields._get_ptr_by_name(name), cgutils.voidptr_t)
                call(builder, (place, *numbers))
            return context.get_dummy_value()

        return types.void(handle, names, used, room), generate

    return grow


_ELEMENT_TYPES = {"bool": "bool_", "int64": "int64", "float64": "float64"}
"""Numba's names of the element types."""


@cache
def numba_type_of_hint(hint: Any) -> Any:
    """Return the Numba type for a type hint. Raise `TypeError` if there is none."""
    if hint is int:
        return types.int64
    if hint is bool:
        return types.bool_
    if hint is float:
        return types.float64
    if kind := array_type_from_hint(hint):
        return types.Array(getattr(types, _ELEMENT_TYPES[kind.dtype]), kind.axes, "C", readonly=not kind.written)
    if isinstance(hint, UnionType):
        return numba_type_of_hint(next(part for part in get_args(hint) if issubclass(part, SharedStruct)))
    if get_origin(hint) is tuple:
        return types.BaseTuple.from_types([numba_type_of_hint(part) for part in get_args(hint)])
    if not (isinstance(hint, type) and issubclass(hint, SharedStruct)):
        raise TypeError(f"{hint}: must be a type that kernels support")
    return SharedStructType(hint.__name__, _field_types(hint))


def _field_types(cls: type[SharedStruct]) -> list[tuple[str, Any]]:
    return [(name, numba_type_of_hint(hint)) for name, hint in kernel_fields(cls).items()]

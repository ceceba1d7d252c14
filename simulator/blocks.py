"""Structures of arrays that compiled code takes by address.

Numba passes a NamedTuple by value, each of its arrays as seven numbers or more. With fifty arrays a call has five
hundred arguments, and compilation takes minutes. An `ArrayBlock` is laid out in memory once and passed as one address;
compiled code reads `block.name` as for the NamedTuple. It counts no references: the Python object keeps the arrays
alive.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.pythonapi import NativeValue
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, lower_getattr_generic, register_model, typeof_impl, unbox
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype
from numpy.typing import NDArray

_WORD = 8  # bytes per entry: a number, an address, or a length
Fields = TypeVar("Fields", bound=tuple[Any, ...])


class BlockType(types.Type):
    """Numba's type of a block: the name, type and offset (in words) of each field."""

    def __init__(self, title: str, fields: tuple[tuple[str, Any, int], ...]) -> None:
        self.title = title
        self.fields = fields
        super().__init__(name=f"{title}({', '.join(f'{name}: {kind}@{at}' for name, kind, at in fields)})")

    def field(self, name: str) -> tuple[Any, int] | None:
        """Return the type and offset of a field, None if there is none of that name."""
        for other, kind, at in self.fields:
            if other == name:
                return kind, at
        return None


def as_block(values: Fields) -> Fields:
    """Lay out a NamedTuple of C-contiguous arrays, numbers and further such NamedTuples for compiled code.

    The result is an `ArrayBlock`. In plain code it reads like `values` and has the same fields.
    """
    return cast(Fields, ArrayBlock(values))


class ArrayBlock(Generic[Fields]):
    """A NamedTuple laid out in memory for compiled code; `as_block` makes one."""

    def __init__(self, values: Fields) -> None:
        self.values = values
        self._kept: list[Any] = []
        words: list[int] = []
        fields = []
        for name, value in zip(cast(Any, values)._fields, values, strict=True):
            fields.append((name, self._add(value, words), len(words) - _words_of(value)))
        self.type = BlockType(type(values).__name__, tuple(fields))
        self._memory: NDArray[np.int64] = np.array(words, np.int64)
        self.address = int(self._memory.ctypes.data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.values, name)

    def _add(self, value: Any, words: list[int]) -> Any:
        if isinstance(value, np.ndarray):
            if not value.flags.c_contiguous:
                raise ValueError(
                    f"a block takes C-contiguous arrays, but this array has strides {value.strides}: copy it with "
                    "np.ascontiguousarray"
                )
            words += [value.ctypes.data, *value.shape]
            return types.Array(from_dtype(value.dtype), value.ndim, "C")
        if isinstance(value, tuple):
            inner: ArrayBlock[Any] = ArrayBlock(cast(Any, value))
            self._kept.append(inner)
            words.append(inner.address)
            return inner.type
        if isinstance(value, float):
            words.append(int(np.float64(value).view(np.int64)))
            return types.float64
        words.append(int(value))
        return types.int64


def _words_of(value: Any) -> int:
    return 1 + value.ndim if isinstance(value, np.ndarray) else 1


@typeof_impl.register(ArrayBlock)
def _typeof(value: ArrayBlock[Any], _context: Any) -> BlockType:
    return value.type


@register_model(BlockType)
class _BlockModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: BlockType) -> None:
        super().__init__(manager, kind, ir.IntType(64))


@unbox(BlockType)
def _unbox(_kind: BlockType, value: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(value, "address")
    native = c.pyapi.long_as_longlong(address)
    c.pyapi.decref(address)
    return NativeValue(native, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@infer_getattr
class _BlockAttributes(AttributeTemplate):
    key = BlockType

    def generic_resolve(self, kind: BlockType, name: str) -> Any:  # type: ignore[override]
        typed_place = kind.field(name)
        return typed_place[0] if typed_place else None


@lower_getattr_generic(BlockType)
def _lower_field(context: Any, builder: Any, kind: BlockType, value: Any, name: str) -> Any:
    typed_place = kind.field(name)
    assert typed_place is not None
    field, at = typed_place
    words = builder.inttoptr(value, ir.IntType(64).as_pointer())

    def word(i: int) -> Any:
        return builder.load(builder.gep(words, [ir.Constant(ir.IntType(64), at + i)]))

    if not isinstance(field, types.Array):
        return builder.bitcast(word(0), ir.DoubleType()) if field == types.float64 else word(0)
    array = make_array(field)(context, builder)
    itemsize = context.get_constant(types.intp, np.dtype(str(field.dtype)).itemsize)
    shape = [word(1 + axis) for axis in range(field.ndim)]
    strides = [itemsize]
    for axis in range(field.ndim - 1, 0, -1):
        strides.insert(0, builder.mul(strides[0], shape[axis]))
    populate_array(
        array,
        data=builder.inttoptr(word(0), context.get_data_type(field.dtype).as_pointer()),
        shape=cgutils.pack_array(builder, shape, ty=ir.IntType(64)),
        strides=cgutils.pack_array(builder, strides, ty=ir.IntType(64)),
        itemsize=itemsize,
        meminfo=None,
    )
    return array._getvalue()

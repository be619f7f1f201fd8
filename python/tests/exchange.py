# SPDX-License-Identifier: Apache-2.0
"""A class of tensors that offers DLPack's C functions, over arrays of numpy."""

import ctypes

import numpy

P, I32, I64, U64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64


class DlTensor(ctypes.Structure):
    _fields_ = [("data", P), ("device_type", I32), ("device_index", I32), ("ndim", I32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(I64)), ("strides", ctypes.POINTER(I64)),
                ("byte_offset", U64)]


class DlManaged(ctypes.Structure):
    pass


Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(DlManaged))
DlManaged._fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", P),
                      ("deleter", Deleter), ("flags", U64), ("t", DlTensor)]

Allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(DlTensor),
                            ctypes.POINTER(ctypes.POINTER(DlManaged)), P, P)
ToManaged = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(P))
ToObject = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(DlManaged), ctypes.POINTER(P))
Borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DlTensor))
Stream = ctypes.CFUNCTYPE(ctypes.c_int, I32, I32, ctypes.POINTER(P))


class Exchange(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", P),
                ("allocate", Allocate), ("to_managed", ToManaged), ("to_object", ToObject),
                ("borrow", Borrow), ("stream", Stream)]


CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class Exchanged:
    """A tensor."""

    borrowed = 0  # how often the C function ran
    device_type = 1

    def __init__(self, array):
        self.array = array
        item = array.itemsize
        self.sizes = (I64 * array.ndim)(*array.shape)
        self.steps = (I64 * array.ndim)(*(s // item for s in array.strides))


@Borrow
def borrow(x, to):
    Exchanged.borrowed += 1
    t, a = to.contents, x.array
    t.data, t.device_type, t.device_index, t.ndim = a.ctypes.data, x.device_type, 0, a.ndim
    t.code, t.bits, t.lanes, t.byte_offset = CODES[a.dtype.kind], 8 * a.itemsize, 1, 0
    t.shape = ctypes.cast(x.sizes, ctypes.POINTER(I64))
    t.strides = ctypes.cast(x.steps, ctypes.POINTER(I64))
    return 0


kept = {}  # allocations by address


@Deleter
def delete(managed):
    kept.pop(ctypes.addressof(managed.contents), None)


@Allocate
def allocate(prototype, to, context, set_error):
    p = prototype.contents
    kind = {v: k for k, v in CODES.items()}[p.code]
    shape = [p.shape[i] for i in range(p.ndim)]
    array = numpy.empty(shape, numpy.dtype(f"{kind}{p.bits // 8}"))
    managed = DlManaged(1, 0, None, delete, 0, p)
    kept[ctypes.addressof(managed)] = managed, array
    to[0] = ctypes.pointer(managed)
    return 0


@ToManaged
def to_managed(x, to):
    return -1


@ToObject
def to_object(managed, to):
    _, array = kept.pop(ctypes.addressof(managed.contents))
    x = Exchanged(array)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))
    to[0] = id(x)
    return 0


@Stream
def stream(device_type, device_index, to):
    to[0] = None
    return 0


table = Exchange(1, 3, None, allocate, to_managed, to_object, borrow, stream)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [P, ctypes.c_char_p, P]
NAME = b"dlpack_exchange_api"  # the capsule borrows it
Exchanged.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(table), NAME, None)

"""Triton's interpreter without what it does over and over: it then takes a quarter of the time.

It computes what it computed, and refuses what it refused. The interpreter's parts that are replaced
are the same in Triton 3.6 to 3.9.
"""

import math
import os
from functools import cache
from importlib.util import find_spec


def hasten():
    import triton.language as tl
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    # Every call of a function of a kernel replaced the language's functions anew.
    interpreter._patch_lang = cache(interpreter._patch_lang)
    interpreter._LangPatchScope.restore = lambda scope: None

    numpys, numpy_of = {}, interpreter._get_np_dtype

    def numpy_type(ty):
        if ty.name not in numpys:
            numpys[ty.name] = numpy_of(ty)
        return numpys[ty.name]

    interpreter._get_np_dtype = numpy_type

    # It computed sums and products of integers in 64 bits too, and asserted nothing of them.
    TritonSemantic.binary_op_sanitize_overflow_impl = lambda *_: None

    plain_block_type = tl.block_type.__init__

    @cache
    def block_of(*sizes):
        block = object.__new__(tl.block_type)
        plain_block_type(block, tl.int1, list(sizes))
        return block.shape, block.numel, str(block.shape)

    def block_type(self, element_ty, shape):
        self.element_ty = element_ty
        self.shape, self.numel, text = block_of(*tl.core._unwrap_shape(shape))
        self.name = f"<{text}, {element_ty}>"

    tl.block_type.__init__ = block_type

    @cache
    def constants(*sizes):
        return tl.tuple([tl.constexpr(size) for size in sizes]), tl.constexpr(math.prod(sizes))

    def tensor(self, handle, type):
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = constants(*(type.shape if type.is_block() else ()))

    tl.tensor.__init__ = tensor


if os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton"):
    from maskalg.backends.triton.trust import is_tested

    if is_tested():
        hasten()

"""Types of the tables that rendered hooks read, as the compiler names them."""

import torch

from maskalg.codegen.arguments import TableArgument

POINTERS = {
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.bool: "*i1",
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
}


def pointer_to(argument, form):
    """The type of one table; what is made of others, or listed or marked, holds int32."""
    if not isinstance(argument, TableArgument) or argument.step:
        return "*i32"
    return POINTERS[form.values[argument.slot].dtype]

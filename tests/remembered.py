"""What is remembered of structures, for tests that count what is found anew."""

from maskalg import normalform


def forget():
    """Forget all of it, as if no call had been made."""
    for structure in list(normalform._STRUCTURES.values()):
        structure.remembered.clear()

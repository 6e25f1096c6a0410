"""What is remembered of structures, for tests that count what is found anew."""

from maskalg.engine import normal_form


def forget():
    """Forget all of it, as if no call had been made."""
    for structure in list(normal_form._STRUCTURES.values()):
        structure.remembered.clear()

"""The proof: which blocks are empty, full or partial, for all values of the parameters.

SymPy lives here and nowhere else, and is imported when a structure is first proved.
"""

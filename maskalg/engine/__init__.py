"""The bound form of an expression (structure and values), and its evaluation with torch."""

"""Segments packed depth first, at random."""


def forest(count, draw):
    """Parents of segments packed depth first."""
    parents = []
    for segment in range(count):
        above, each = [-1], segment - 1
        while each >= 0:
            above.append(each)
            each = parents[each]
        parents.append(draw.choice(above))
    return parents

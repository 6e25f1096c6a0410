"""Tiles that begin where documents do: the same bits however documents are packed."""

from ..traits import Traits

TRAITS = Traits()

"""Masks in the formats of other libraries, and as Boolean tensors."""

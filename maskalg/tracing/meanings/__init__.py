"""The meaning of recorded operations of torch, as formulas."""

"""What recorded operations of torch mean as formulas."""

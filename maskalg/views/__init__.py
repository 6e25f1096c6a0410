"""What a person looks at: pictures, pages, typeset formulas."""

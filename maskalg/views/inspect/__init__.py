"""Pictures of masks: text for a terminal, SVG for a page. Each is imported when first used."""

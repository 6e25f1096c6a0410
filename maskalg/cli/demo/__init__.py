"""`maskalg demo`: the main job on real text, next to the dense way."""

"""The schedule: which tiles of keys each tile of queries visits, and which of them need masking."""

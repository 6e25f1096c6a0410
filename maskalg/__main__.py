"""`python -m maskalg`: the `maskalg` command."""

from .cli import main

raise SystemExit(main())

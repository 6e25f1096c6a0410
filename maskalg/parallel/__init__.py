"""Context parallelism: the tokens of one long sequence shared among processes."""

from .planning import Plan, Share, plan

__all__ = ["Plan", "Share", "plan"]

"""Context parallelism: the tokens of one long sequence shared among processes."""

from .attend import attention
from .planning import Plan, Share, plan

__all__ = ["Plan", "Share", "attention", "plan"]

"""The kernels: ordinary Triton, with rendered hooks for what an expression needs.

Installed as `maskalg_kernels`. Only these files and `maskalg/backends/triton/` import Triton.
"""

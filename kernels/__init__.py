"""The kernels: Triton, and Gluon on Hopper, with rendered hooks for what an expression needs.

Installed as `maskalg_kernels`. Only these files, `maskalg/backends/triton/` and the rendered hooks
import Triton. Begin with `elements`, which explains the words of all kernels, and `forward`.
"""

"""The families of kernels: the calls that each computes, and its launches."""

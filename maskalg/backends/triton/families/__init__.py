"""The families of kernels: what each serves, and its launches."""

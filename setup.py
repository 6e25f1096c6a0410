"""The packages: each folder of maskalg, and kernels/ as maskalg_kernels."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["maskalg", "maskalg.*"]), "maskalg_kernels"])

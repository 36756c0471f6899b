"""The whole decoder stack of common architectures in C++, for CPUs."""

"""The embedded engine: all cores in one process, on a SimPy calendar."""

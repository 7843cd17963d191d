"""The other rows of the paper's tables: graph kernels, and models that are not normalized."""

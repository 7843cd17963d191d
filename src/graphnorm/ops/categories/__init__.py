"""Linear layers over categories: the product of a one-hot matrix with a weight, without the matrix."""

from graphnorm.ops.categories.call import project_categories

__all__ = ["project_categories"]

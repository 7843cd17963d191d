"""The paper "GraphNorm: A Principled Approach to Accelerating Graph Neural Network Training" (ICML 2021)."""

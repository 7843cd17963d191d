"""The operations that cost time, each with its plain twin beside the fast ones."""
